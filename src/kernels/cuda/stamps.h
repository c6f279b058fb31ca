// What kernels note in builds with COHORT_CUDA_STAMPS (device.cuh: stamp), for device_check; otherwise nothing.
#pragma once

#include <vector>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/lower.h"

namespace cohort::cuda {

/// Room for the stamps of a step of so many launches.
Expected<void> allocate_stamps(DeviceMemory& memory, size_t launches, Step& step);
/// The launches that follow note in the next place.
void next_launch(Step& step);
Expected<std::vector<BlockStamps>> read_stamps(const Step& step, const std::vector<const Launch*>& launches);

}  // namespace cohort::cuda
