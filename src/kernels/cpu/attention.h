// Attention over the paged KV cache on the CPU (docs/NUMERICS.md, rule 7), as flat lists of jobs. Decode rows, prefill
// rows and window rows are the same jobs with the same arithmetic.
//
// Use: AttentionPlan once per step and attention shape (layers share it); per layer append every row, then run all
// jobs(), then all merges(). The three are separated by barriers; inside each, jobs may run in any order on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/batch.h"
#include "kernels/cpu/isa.h"
#include "kv/cache.h"
#include "models/program.h"

namespace cohort::cpu {

/// A block of query rows of one sequence and all query heads of one KV head, over some of the splits they see.
struct AttentionJob {
  int32_t sequence = 0;  // index into Batch::sequences
  int32_t kv_head = 0;
  int32_t first_row = 0, rows = 0;            // within the sequence
  int32_t block_split = 0, block_splits = 0;  // the splits that any row of the block sees
  int32_t first_split = 0, splits = 0;        // those of this job
  int64_t partials = -1;  // where the block's partial results lie in AttentionCall::shared; -1: the job has all splits
  float cost = 0;         // estimated nanoseconds
};

/// What jobs read and write: plain pointers, one layer.
struct AttentionCall {
  op::Attend attend;
  TensorType type;
  const SequenceRows* sequences;
  std::byte* keys;     // page 0 of the layer
  std::byte* values;   // page 0 of the layer
  size_t page_stride;  // bytes from a page to the next
  const float* q;      // [rows, heads * head_dim]
  float* out;          // [rows, heads * head_dim]
  float* shared;       // [AttentionPlan::shared_floats()]
  const float* sinks;  // [heads] or null
  /// What small jobs prefetch: all of the next job, else their own next page. It pays where jobs are many, because
  /// nobody fetches those of a thread's first one.
  bool far_ahead = false;
};

AttentionCall make_attention_call(const op::Attend& attend, const Batch& batch, KvCache& cache, const float* q,
                                  float* out, float* shared);

struct AttentionKernels {
  int32_t tile_rows;  // (row, head) pairs that one pass over K and V serves
  /// Rounds rows [first, first + rows) of a sequence to the cache type and stores them. k, v [rows of the batch,
  /// kv_heads * head_dim]. Rows may be appended by different threads.
  void (*append)(const AttentionCall& call, const SequenceRows& sequence, int32_t first, int32_t rows, const float* k,
                 const float* v);
  /// next: the job that this thread probably takes after it, or null: its front, or all of it, is prefetched meanwhile.
  /// scratch: [AttentionPlan::scratch_floats()] of the running thread, 64-byte aligned.
  void (*run)(const AttentionCall& call, const AttentionJob& job, const AttentionJob* next, float* scratch);
  void (*merge)(const AttentionCall& call, const AttentionJob& merge);
};

/// The kernels of an instruction set that this build has (amx uses avx512's; anything it was not built for: scalar's).
const AttentionKernels& attention_kernels(Isa isa);

/// The jobs of one step for layers of one shape (heads, kv_heads, head_dim, window). The way work is cut depends on
/// `threads`; the results do not.
class AttentionPlan {
 public:
  AttentionPlan(const op::Attend& shape, const Batch& batch, const AttentionKernels& kernels, int threads);

  bool fits(const op::Attend& attend) const;
  std::span<const AttentionJob> jobs() const { return jobs_; }      // most expensive first
  std::span<const AttentionJob> merges() const { return merges_; }  // of blocks that several jobs share; often none
  size_t scratch_floats() const { return scratch_floats_; }         // per thread
  size_t shared_floats() const { return shared_floats_; }

 private:
  op::Attend shape_;
  std::vector<AttentionJob> jobs_, merges_;
  size_t scratch_floats_ = 0, shared_floats_ = 0;
};

}  // namespace cohort::cpu
