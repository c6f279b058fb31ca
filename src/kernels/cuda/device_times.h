// Times taken on the device.
#pragma once

#include <vector>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/lower.h"

namespace cohort::cuda {

/// Each kind of launch on the data that the last step left, all launches of a kind back to back; best of several.
Expected<std::vector<KernelTime>> time_kinds(const std::vector<const Launch*>& launches, const Launcher& launcher);

/// Bytes a second of the fastest of a few reads of `bytes` of device memory; 0: it failed. out: one word.
double read_rate(const std::byte* data, size_t bytes, int32_t* out, int sms, cudaStream_t stream);

}  // namespace cohort::cuda
