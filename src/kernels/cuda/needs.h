// What a program takes of a device's memory, found without a device.
#pragma once

#include "kernels/cuda/lower.h"
#include "moe/placement.h"

namespace cohort::cuda {

struct ProgramNeeds {
  DeviceNeeds memory;      // without cache and counts
  size_t allocations = 0;  // the device rounds each up
};

/// By lowering the program without a device, the step's own data counted. Errors name the tensor that cannot run.
Expected<ProgramNeeds> needs_of(const Program& program, const Limits& limits);

}  // namespace cohort::cuda
