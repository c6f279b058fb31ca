// Device memory and the way weights go there.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

#include "base/thread_team.h"
#include "cohort/error.h"
#include "kernels/cuda/layout.h"
#include "models/weights.h"

namespace cohort::cuda {

/// An error of the CUDA runtime as ours: capacity when memory ran out, else unsupported.
Expected<void> check(cudaError_t error, const char* what);

/// Owns device allocations until it is destroyed or cleared.
class DeviceMemory {
 public:
  /// dry: nothing is allocated, bytes are counted, pointers are not to be used.
  explicit DeviceMemory(bool dry = false) : dry_(dry) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { clear(); }
  void clear();
  /// `bytes` of device memory for `what`.
  Expected<void*> allocate(size_t bytes, const char* what);
  /// The same, and zeros in it.
  Expected<void*> allocate_zeros(size_t bytes, const char* what);
  size_t bytes() const { return bytes_; }
  size_t allocations() const { return allocations_; }
  bool dry() const { return dry_; }

 private:
  bool dry_;
  std::vector<void*> blocks_;
  size_t bytes_ = 0, allocations_ = 0;
};

/// Streams data to the device through two pinned buffers that a thread team fills.
class Uploader {
 public:
  static Expected<std::unique_ptr<Uploader>> create(DeviceMemory& memory, int threads, double total_bytes,
                                                    std::function<void(double)> progress);
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  /// Allocates count * item_bytes on the device; fill(index, out) makes item `index` (called from several threads).
  Expected<std::byte*> upload(int64_t count, size_t item_bytes, const std::function<void(int64_t, std::byte*)>& fill,
                              const char* what);
  /// Copies floats as they are.
  Expected<float*> upload(const std::vector<float>& values, const char* what);
  Expected<void> finish();

 private:
  Uploader(DeviceMemory& memory, int threads) : memory_(memory), team_(threads) {}
  static constexpr size_t kBufferBytes = size_t{64} << 20;
  DeviceMemory& memory_;
  ThreadTeam team_;
  std::byte* buffers_[2] = {};
  cudaEvent_t sent_[2] = {};
  cudaStream_t stream_ = nullptr;
  int next_ = 0;
  double total_ = 1, done_ = 0;
  std::function<void(double)> progress_;
};

}  // namespace cohort::cuda
