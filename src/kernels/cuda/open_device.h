// Which CUDA device there is, and whether this build can use it.
#pragma once

#include <cuda_runtime_api.h>

#include "cohort/error.h"

namespace cohort::cuda {

/// Errors: not_found (no driver: no machine for CUDA), unsupported (an old driver, no device, too old a device),
/// invalid_argument (no such device).
Expected<cudaDeviceProp> open_device(int device);

struct MemoryOfDevice {
  size_t free = 0, total = 0;
};
/// Of the selected device.
Expected<MemoryOfDevice> memory_of_device();

}  // namespace cohort::cuda
