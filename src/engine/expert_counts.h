// How often each expert of a model is chosen, as an importance matrix has counted it.
#pragma once

#include <filesystem>
#include <vector>

#include "cohort/error.h"
#include "models/program.h"

namespace cohort {

/// [layers with experts, experts] rows that the calibration text sent to each expert. Errors: what read_importance
/// says; invalid_argument when the file has no counts of a layer, of another number of experts, or (the older format)
/// none that tell experts apart.
Expected<std::vector<std::vector<float>>> read_expert_counts(const std::filesystem::path& path, const Program& program);

}  // namespace cohort
