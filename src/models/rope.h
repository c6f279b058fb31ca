// Internal to models/: how files describe the stretching of rotary frequencies.
#pragma once

#include "base/json.h"
#include "formats/gguf/metadata.h"
#include "models/config.h"

namespace cohort {

/// More than any model's; keeps a hostile file from asking for absurd tables.
inline constexpr int64_t kMaxContext = 1 << 26;

/// Sets rope_base and rope_scaling, as transformers reads them; out.context must be set. unsupported: other kinds.
Expected<void> read_rope_from_huggingface(const JsonObject& config, ModelConfig& out);
/// The same from "<architecture>.rope.*", as llama.cpp reads them.
Expected<void> read_rope_from_gguf(const gguf::Metadata& metadata, ModelConfig& out);

}  // namespace cohort
