// Internal to models/: the rules of block diffusion that come with a model.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/json.h"
#include "cohort/sampling.h"
#include "formats/gguf/metadata.h"

namespace cohort {

/// diffusion.canvas_length, which must be there, and diffusion.eb_*.
Expected<void> read_diffusion_from_gguf(const gguf::Metadata& metadata, DiffusionRules& out);
/// canvas_length of config.json.
Expected<void> read_diffusion_from_huggingface(const JsonObject& config, DiffusionRules& out);
/// What generation_config.json says beside that.
Expected<void> read_diffusion_from_generation_config(const nlohmann::json& config, DiffusionRules& out);

}  // namespace cohort
