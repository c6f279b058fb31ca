// Internal to models/: which layers see a sliding window, as files say it.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "formats/gguf/metadata.h"

namespace cohort {

/// `layer_types` of config.json: "sliding_attention" or "full_attention" for each layer. corrupt: no such list, or of
/// another length; unsupported: another name.
Expected<std::vector<bool>> read_layer_types(const JsonObject& config, int32_t layers);
/// `key` of a GGUF file: a boolean for each layer, or a number n: every n-th layer is full (0: all).
Expected<std::vector<bool>> read_sliding_pattern(const gguf::Metadata& metadata, const std::string& key,
                                                 int32_t layers);
/// As such a number says it.
std::vector<bool> sliding_but_every(int64_t period, int32_t layers);

}  // namespace cohort
