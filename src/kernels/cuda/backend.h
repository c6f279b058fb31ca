// The CUDA backend: any program in canonical numerics, one captured graph launch per step.
//
// Fusions (they never change a bit): linear layers that share an input run as one; a linear layer adds its residual;
// the heads' norms, rope and the cache append are one kernel, or part of attention when every sequence has one row;
// attention merges its splits and quantises; the router of few rows takes its norm along; gate/up quantises; the
// experts' weighted sum and its residual belong to down at few rows, else to the pass of the next norm.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/canvas_reader.h"
#include "kernels/cpu/host_experts.h"
#include "moe/placement.h"

namespace cohort {

struct CudaOptions {
  int device = 0;
  int32_t max_rows = 2048;               // of one submission; a larger batch runs as several
  int32_t canvas = 0;                    // length of the model's canvases (block diffusion); 0: it has none
  int32_t streams = 1;                   // of which the device keeps a canvas each
  int threads = 1;                       // that pack weights, and compute experts in host memory
  bool graph = true;                     // false: every kernel is launched on its own (the off-switch)
  std::function<void(double)> progress;  // 0..1 while the weights go up; may be empty

  // Experts that do not fit lie in host memory and are computed there.
  size_t memory_limit = 0;                        // bytes of the device that may be used; 0: what is free
  size_t cache_least = 0, cache_wanted = 0;       // bytes of the KV cache that will be allocated
  std::vector<std::vector<float>> expert_counts;  // [layers with experts, experts] how often each is chosen, or empty
  std::string counts_from;                        // "counts of FILE"
  cpu::HostExperts::Options host = {};            // `threads` and `progress` come from above
};

/// All launches of one kind in a step, run back to back without the others.
struct KernelTime {
  std::string kind;
  int64_t launches = 0;
  double seconds = 0;  // of all of them, best of several
};

/// Where the first thread of a block was when, in builds with COHORT_STAMPS (kernels of few rows).
struct BlockStamps {
  const char* kind = "";
  int64_t launch = 0;
  bool second = false;  // of the launch's kernels
  int32_t block = 0, sm = 0;
  uint64_t start_ns = 0;         // the device's clock at the start; coarse
  std::vector<uint64_t> cycles;  // of the SM: start, then the kernel's places; 0: not reached
};

class CudaBackend : public Backend, public CanvasReader {
 public:
  /// As run, but the device picks each sampled row's highest logit (ties to the lower id) and only the ids come back.
  virtual Expected<StepStats> run_greedy(const Batch& batch, std::span<int32_t> tokens) = 0;
  /// Submissions of the last step: 1 with the graph (for a batch of at most max_rows rows), else one per kernel.
  virtual int64_t submissions() const = 0;
  /// Kernels inside of the last step.
  virtual int64_t kernels() const = 0;
  /// Times each kind of kernel on the data of the last step, which had `rows` rows. Each layer's launch reads its own
  /// weights, so nothing but the dependence between kinds is left out.
  virtual Expected<std::vector<KernelTime>> profile(int32_t rows) = 0;
  /// The blocks of the last step.
  virtual Expected<std::vector<BlockStamps>> stamps() = 0;
  /// Bytes of device memory in use: weights, activations, cache.
  virtual size_t device_bytes() const = 0;
};

/// Uploads the weights, those experts that fit. Errors: not_found (no driver), unsupported (built without CUDA, no
/// device, an old driver, a shape or type this backend cannot run), capacity (too little memory of the device or of the
/// host). `program` must outlive the backend; its weights are no longer needed, but for float experts in host memory.
Expected<std::unique_ptr<CudaBackend>> make_cuda_backend(const Program& program, const CudaOptions& options);

/// What the program takes of a device's memory in steps of at most max_rows rows, with canvases of so many rows of so
/// many streams; asks no device. Errors: unsupported.
Expected<DeviceNeeds> cuda_memory_needs(const Program& program, int32_t max_rows, int32_t canvas = 0,
                                        int32_t streams = 1);

/// "NVIDIA H200, 139.8 GB free of 143.8", or why there is no device to use: not_found when neither this build nor this
/// machine is made for one, invalid_argument when there are devices but not this one.
Expected<std::string> describe_cuda_device(int device);

}  // namespace cohort
