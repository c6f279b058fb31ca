// Internal to models/: which tensor of a Hugging Face folder a GGUF name stands for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors/safetensors.h"

namespace cohort {

class HuggingFaceNames {
 public:
  /// Looks into the folder where checkpoints of an architecture differ.
  HuggingFaceNames(const safetensors::Folder& folder, std::string_view architecture);

  /// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight". A name without a counterpart comes back with
  /// the layer's prefix, for messages.
  std::string tensor(const std::string& name) const;

  /// Where the matrices "blk.N.ffn_{gate,up,down}_exps" of all experts may be.
  struct Experts {
    std::vector<std::string> stacked;  // modules [experts, rows, cols]
    std::vector<std::string> fused;    // tensors gate_up_proj [experts, 2 * inner, hidden] or down_proj
    /// gpt-oss: gate_up_proj has the rows of gate and up in turn, and floats are stored with the input first,
    /// [experts, hidden, 2 * inner].
    bool in_turn = false;
    std::string first, last;  // module of expert E: first + E + last
    std::string of(int64_t expert) const { return first + std::to_string(expert) + last; }
  };
  Experts experts(const std::string& name) const;

 private:
  std::string layer(const std::string& name) const;

  const safetensors::Folder& folder_;
  bool mixtral_, gemma_, gpt_oss_;
  std::string prefix_;  // of the text model: "model."
};

/// Tensors of what the model sees or hears with, which text does not need.
bool is_other_than_text(std::string_view tensor);

}  // namespace cohort
