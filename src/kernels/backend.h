// A backend runs a program over batches. Three exist: reference (the oracle), cpu, cuda; all give the same bits.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/thread_team.h"
#include "cohort/error.h"
#include "kernels/batch.h"
#include "models/program.h"

namespace cohort {

/// Validation switches of the reference (docs/NUMERICS.md, rule 4); the fast backends only know `canonical`.
enum class ActivationMode { canonical, float_all, int8_all };

/// Sees what enters the matrices of every step, for calibration.
class MatrixInputObserver {
 public:
  virtual ~MatrixInputObserver() = default;
  /// These rows of weight.cols values entered matrix `expert` of `weight`. Called from the thread that runs the step,
  /// one call at a time; the pointers are valid during the call.
  virtual void see(const Weight& weight, int64_t expert, std::span<const float* const> rows) = 0;
};

struct TopLogit {
  int32_t token = -1;
  float logit = 0;
};

/// How a row's token is drawn from all of its logits (docs/NUMERICS.md, rule 8), with no filter but min_p.
struct DrawRule {
  float temperature = 0;  // 0: no draw is wanted
  float min_p = 0;
  float u = 0;  // the random number
};
struct Draw {
  int32_t token = -1;  // -1: only the logits can tell, since none was wanted, one is NaN or the largest infinite
  float total = 0;     // of the weights that were not below min_p
};

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
  /// How many of a row's largest logits run_top() gives; 0: this backend has only run().
  virtual int32_t top_logits() const { return 0; }
  /// As run(), but only each sampled row's largest logits come back, where the host's link to the device is slower than
  /// the device's choice. top: [sampled rows, top_logits()], higher first, ties to the lower token, a NaN before
  /// everything; token -1 beyond the vocabulary. rules: [sampled rows], or empty when no row wants a draw; draws:
  /// [sampled rows], token -1 where none was wanted.
  virtual Expected<StepStats> run_top(const Batch& batch, std::span<const DrawRule> rules, std::span<TopLogit> top,
                                      std::span<Draw> draws);
  /// All logits [vocabulary] of sampled row `row` of the last run_top().
  virtual Expected<void> read_logits(int32_t row, std::span<float> logits);
  /// Bytes that allocate_cache() could take where the cache lies.
  virtual size_t free_cache_bytes() const;
  /// Whether those bytes were set aside for the cache, so that all of them may be taken.
  virtual bool cache_is_reserved() const { return false; }
  /// Bytes a second that it reads from memory of its own, measured now; 0: its weights lie in the host's memory, or
  /// there was no room to measure.
  virtual double read_bandwidth() { return 0; }
  /// Copies page `from` to page `to` in every layer (copy-on-write of a shared partial page).
  virtual void copy_page(int32_t from, int32_t to) = 0;
  /// Shows the inputs of all matrices of the following steps, until nullptr is given; the results stay the same. Where
  /// a value exists only in its int8 form, that is what is shown. unsupported: this backend cannot.
  virtual Expected<void> observe(MatrixInputObserver* observer);
  /// Threads that have nothing to do between steps, for the caller of run() to use then; null: there are none. (A
  /// second team beside them would keep cores from this one while it waits for work.)
  virtual ThreadTeam* team() { return nullptr; }
};

}  // namespace cohort
