// Synthetic models: random weights in the shapes and types of a real architecture, as a GGUF file that any engine
// loads. They tell how fast a machine will be before tens of gigabytes are downloaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"
#include "formats/gguf/metadata.h"
#include "models/config.h"
#include "quant/types.h"

namespace cohort {

/// What a tensor is for; decides its type and the spread of its values.
enum class TensorRole { vector, router, embedding, head, attention, attention_v, feed_forward, feed_forward_down };

struct SynthTensor {
  std::string name;            // with ".weight"
  std::vector<int64_t> shape;  // GGUF order: K first
  TensorRole role;
  int32_t layer = -1;
  float constant = 0;              // role vector: every value; 0 = random around 1
  std::vector<float> values = {};  // role vector: these values instead
};

/// An architecture as a file would describe it: all metadata but the types, all tensors but their values.
struct SynthModel {
  std::string architecture;
  gguf::Metadata metadata;
  std::vector<SynthTensor> tensors;
  int32_t layers = 0;
  bool tied = false;  // the embedding is the head
};

/// "qwen3-30b-a3b", "qwen3-moe-mini", ...
std::vector<std::string_view> synth_config_names();
/// `config`: one of the names, or the path of a Hugging Face config.json. layers: 0 = as many as the model has.
/// not_found lists the names; invalid_argument for a negative number of layers.
Expected<SynthModel> synth_model(const std::string& config, int32_t layers);

/// A type for every tensor, as llama.cpp's quantiser distributes them: norms and routers f32; the head Q6_K; with
/// "q4_k_m" and "q5_k_m" more bits for V and down of some layers; types that do not divide a row fall back.
/// invalid_argument lists the names.
Expected<std::vector<TensorType>> synth_types(const SynthModel& model, std::string_view type);
std::vector<std::string_view> synth_type_names();

struct SynthOptions {
  std::string config;
  std::string type;
  std::filesystem::path output;
  int32_t layers = 0;
  uint64_t seed = 0;
  int threads = 1;
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes; may be empty
};
/// Writes the file; the bytes are a function of (config, type, layers, seed). Returns its size.
Expected<uint64_t> synthesise(const SynthOptions& options);

}  // namespace cohort
