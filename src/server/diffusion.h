// What is special in serving a model of block diffusion.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cohort/engine.h"
#include "server/openai/request.h"

namespace cohort::server {

/// Such a model chooses many tokens together, by rules of its own (--diffusion-*). unsupported, naming the field that
/// is about one token after another.
Expected<void> check_diffusion(const GenerationRequest& request, const Engine& engine);

/// For /props: null for models that make one token after another.
nlohmann::ordered_json diffusion_json(const DiffusionRules& rules);

}  // namespace cohort::server
