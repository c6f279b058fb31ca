// Internal to models/: what is special in the configuration of gpt-oss.
#pragma once

#include <string_view>

#include "base/json.h"
#include "formats/gguf/metadata.h"
#include "models/config.h"

namespace cohort {

/// "gpt-oss"
bool is_gpt_oss(std::string_view architecture);

/// Which layers slide, the window, YaRN and the experts of config.json; layers, heads, head_dim and context of `out`
/// must be set. unsupported: what this family does not compute, naming the key.
Expected<void> read_gpt_oss_from_huggingface(const JsonObject& config, ModelConfig& out);
/// The window and its pattern of "gpt-oss.attention.*"; all else is as in other families.
Expected<void> read_gpt_oss_from_gguf(const gguf::Metadata& metadata, ModelConfig& out);

/// What only this family needs: experts, and a window where layers slide.
Expected<void> check_gpt_oss(const ModelConfig& config);

}  // namespace cohort
