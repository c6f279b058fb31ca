// A backend runs a program over batches. Three exist: reference (the oracle), cpu, cuda; all give the same bits.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "cohort/error.h"
#include "kernels/batch.h"
#include "models/program.h"

namespace cohort {

/// Validation switches of the reference (docs/NUMERICS.md, rule 4); the fast backends only know `canonical`.
enum class ActivationMode { canonical, float_all, int8_all };

class Backend {
 public:
  virtual ~Backend() = default;
  /// "cpu avx512+amx, 2 threads": for start-up lines and /props.
  virtual std::string description() const = 0;
  /// Makes room for `pages` KV pages (replaces what was there).
  virtual Expected<void> allocate_cache(TensorType type, int32_t pages) = 0;
  /// One step. logits: [sampled rows, vocabulary]. The batch is trusted: positions and pages were checked by the
  /// engine.
  virtual Expected<StepStats> run(const Batch& batch, std::span<float> logits) = 0;
  /// Copies page `from` to page `to` in every layer (copy-on-write of a shared partial page).
  virtual void copy_page(int32_t from, int32_t to) = 0;
};

}  // namespace cohort
