// What a family needs to know of a model, however it is stored.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cohort/error.h"
#include "cohort/sampling.h"
#include "models/program.h"

namespace cohort {

namespace gguf {
class Metadata;
}

/// Stretching of rotary frequencies beyond the trained context.
struct RopeScaling {
  enum class Kind { none, linear, llama3, yarn } kind = Kind::none;
  double factor = 1;
  double original_context = 0;
  double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3
  // yarn; attention_factor scales queries and keys
  double beta_fast = 32, beta_slow = 1, attention_factor = 1;
  bool truncate = true;  // yarn: the ramp begins and ends at whole pairs (gpt-oss: it need not)
};

/// Attention of sliding-window layers. Gemma has other heads and rotary tables there; gpt-oss has the same everywhere,
/// so that only layers and window are set.
struct SlidingAttention {
  std::vector<bool> layers;  // [layers]: which ones slide; empty: none
  int32_t window = 0;        // position j is visible from t when t - j < window
  int32_t kv_heads = 0, head_dim = 0, rotary_dims = 0;
  double rope_base = 10000;
};

struct ModelConfig {
  std::string architecture;  // GGUF's name: "qwen3moe"
  std::string name;          // for people
  int32_t layers = 0;
  int32_t hidden = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t rotary_dims = 0;
  int32_t vocabulary = 0;
  int32_t context = 0;
  int32_t inner = 0;         // width of the dense MLP
  int32_t expert_inner = 0;  // width of one expert
  int32_t experts = 0;       // 0 = dense
  int32_t top_k = 0;
  bool renormalise = true;  // expert weights sum to 1
  float rms_eps = 1e-6F;
  double rope_base = 10000;
  RopeScaling rope_scaling;
  /// GGUF files of `llama` keep Q and K rows permuted so that rotary pairs are adjacent; safetensors do not.
  RopePairing rope_pairing = RopePairing::half_split;
  // Gemma. kv_heads, head_dim, rotary_dims and rope_* above are those of the layers that see everything.
  SlidingAttention sliding;
  int32_t turning_pairs = -1;   // the first pairs of a head that rotate, the others stand still; -1: all
  bool keys_as_values = false;  // full layers without attn_v take what attn_k gives for their values
  DiffusionRules diffusion;     // DiffusionGemma
  float logit_softcap = 0;      // logits become cap * tanh(logits / cap); 0: they stay as they are

  bool slides(int32_t layer) const { return !sliding.layers.empty() && sliding.layers[static_cast<size_t>(layer)]; }
};

/// Reads the keys of `architecture`; the vocabulary comes from the token list or the embedding. Errors name the key,
/// value and limit.
Expected<ModelConfig> config_from_gguf(const gguf::Metadata& metadata);
/// Reads a Hugging Face config.json.
Expected<ModelConfig> config_from_huggingface(const nlohmann::json& config);

/// Refuses what no program can be built from (zero heads, odd rotary dimensions, top-k above the experts, ...) and
/// values that no model has (an epsilon of 1e12, a negative rotary base, NaN). corrupt, naming the value, the limits
/// and the fix.
Expected<void> check(const ModelConfig& config);

/// Rotary frequencies with the scaling applied; `context` positions are filled later.
RopeTables make_rope_tables(const ModelConfig& config);

}  // namespace cohort
