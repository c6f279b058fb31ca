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

/// That the canvases of all streams fit `room` bytes beside the rest, experts apart. capacity: how many streams' would.
Expected<void> check_canvas_room(const DeviceNeeds& needs, const Limits& limits, int32_t vocabulary, size_t room);

}  // namespace cohort::cuda
