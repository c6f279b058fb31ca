#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/open_device.h"

#include "base/result.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/memory.h"

namespace cohort {
namespace cuda {

Expected<cudaDeviceProp> open_device(int device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) return fail(ErrorCode::not_found, "no CUDA driver was found on this machine; use --device cpu");
    return fail(ErrorCode::unsupported,
                "the CUDA driver is too old: it supports CUDA {}.{}, this binary needs {}.{}; update the driver or use "
                "--device cpu",
                driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
    return fail(ErrorCode::unsupported, "no CUDA device was found; use --device cpu");
  COHORT_TRY(check(error, "looking for devices"));
  if (device < 0 || device >= count)
    return fail(ErrorCode::invalid_argument, "there is no CUDA device {}: there are {}, counted from 0", device, count);
  cudaDeviceProp properties = {};
  COHORT_TRY(check(cudaGetDeviceProperties(&properties, device), "reading the device's properties"));
  if (properties.major < 9) {
    return fail(ErrorCode::unsupported,
                "device {} ({}) has compute capability {}.{}; this build needs 9.0 or newer; use --device cpu", device,
                properties.name, properties.major, properties.minor);
  }
  return properties;
}

Expected<MemoryOfDevice> memory_of_device() {
  MemoryOfDevice memory;
  COHORT_TRY(check(cudaMemGetInfo(&memory.free, &memory.total), "reading the device's memory"));
  return memory;
}

}  // namespace cuda

Expected<std::string> describe_cuda_device(int device) {
  COHORT_ASSIGN(const cudaDeviceProp properties, cuda::open_device(device));
  COHORT_TRY(cuda::check(cudaSetDevice(device), "selecting the device"));
  COHORT_ASSIGN(const cuda::MemoryOfDevice memory, cuda::memory_of_device());
  return fmt::format("{}, {:.1f} GB free of {:.1f}", properties.name, static_cast<double>(memory.free) / 1e9,
                     static_cast<double>(memory.total) / 1e9);
}

}  // namespace cohort

#endif  // COHORT_HAS_CUDA
