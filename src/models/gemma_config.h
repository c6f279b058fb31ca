// Internal to models/: what is special in the configuration of Gemma 4 and its relatives.
#pragma once

#include <string_view>

#include "base/json.h"
#include "formats/gguf/metadata.h"
#include "models/config.h"

namespace cohort {

/// "gemma4" and "diffusion-gemma".
bool is_gemma(std::string_view architecture);

/// Experts, layer types, heads, rotary tables and softcap of config.json's text_config; layers, hidden, heads and
/// context of `out` must be set. unsupported: what this family does not compute, naming the key.
Expected<void> read_gemma_from_huggingface(const JsonObject& text, ModelConfig& out);
/// The same from "<architecture>.*".
Expected<void> read_gemma_from_gguf(const gguf::Metadata& metadata, ModelConfig& out);

/// Checks what is not the same in all layers; the rest of check() covers the full ones.
Expected<void> check_gemma(const ModelConfig& config);

}  // namespace cohort
