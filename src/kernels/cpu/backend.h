// The CPU backend: a program compiled into stages over one thread team (plan.h), quantised weights packed once
// (layout.h), kernels chosen by instruction set. Same bits as the reference on every instruction set, for every number
// of threads and rows (docs/NUMERICS.md).
#pragma once

#include <memory>
#include <string>

#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/profile.h"
#include "kernels/cpu/tuning.h"
#include "kernels/cpu/weight_memory.h"

namespace cohort {

struct CpuOptions {
  Isa isa = best_isa();
  /// 0: one per core that this process may use. At most kMaxThreads.
  int threads = 0;
  bool pin = false;
  /// Packed weights on disk.
  cpu::PackedCache packed = {};
  /// How the pass over experts orders its work.
  cpu::TuningTable tuning = {};

  static constexpr int kMaxThreads = 1024;
};

class CpuBackend : public Backend {
 public:
  /// Adds every following step to `profile` until nullptr is given. Slows steps down by a few percent.
  virtual void set_profile(cpu::StepProfile* profile) = 0;
  /// The stages and what is fused into each, for `inspect --program` and profiles.
  virtual std::string plan_text() const = 0;
  /// Bytes of packed weights held in memory.
  virtual size_t packed_bytes() const = 0;
  virtual int threads() const = 0;
};

/// Packs the weights (progress in bytes) and compiles the program, which must outlive the backend, as must its weights.
/// Errors: unsupported when the machine lacks options.isa, invalid_argument for a thread count below 0 or above
/// kMaxThreads, capacity when the packed weights do not fit into memory.
Expected<std::unique_ptr<CpuBackend>> make_cpu_backend(const Program& program, const CpuOptions& options,
                                                       const cpu::PackProgress& progress = {});

}  // namespace cohort
