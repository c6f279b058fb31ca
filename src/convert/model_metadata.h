// The general.* and architecture keys of a converted file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cohort/error.h"
#include "formats/gguf/metadata.h"
#include "models/config.h"

namespace cohort::convert_detail {

/// Adds general.* (name, type, file type, recommended sampling) and "<architecture>.*". `generation_config` may be
/// null. `notes` get what other programs may read differently.
Expected<void> add_model_metadata(const ModelConfig& config, const std::string& name, TensorType type,
                                  const nlohmann::json* generation_config, gguf::Metadata& out,
                                  std::vector<std::string>& notes);

}  // namespace cohort::convert_detail
