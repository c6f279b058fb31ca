// A block of attention at work: which positions its rows see, where its scratch lies and where in the cache its keys
// and values do. Templates over Ops for the same reason as in attention_impl.h.
#pragma once

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_layout.h"
#include "numerics/cached.h"

namespace cohort::cpu {

template <class Ops>
struct AttentionBlocks {
  static constexpr int kLanes = 16;
  static constexpr int kRows = Ops::kTileRows;
  using Half = numerics::Half;
  template <class T>
  static constexpr bool kScaled = sizeof(T) == 1;  // numerics::Eight

  static constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
  static constexpr int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

  // Positions [lo, hi).
  struct Range {
    int64_t lo, hi;
    bool empty() const { return lo >= hi; }
    Range clip(int64_t from, int64_t to) const { return {most(lo, from), least(hi, to)}; }
  };

  // A block at work: sizes, where its scratch lies, what its rows see.
  template <class T>
  struct Block {
    const AttentionCall& call;
    const AttentionJob& job;
    const AttentionJob* next;
    const SequenceRows& sequence;
    int64_t group, head_dim, width, real, queries;  // real: without padding
    float *q, *p, *keys, *values, *segments;

    Block(const AttentionCall& c, const AttentionJob& j, const AttentionJob* following, float* scratch)
        : call(c), job(j), next(following), sequence(c.sequences[j.sequence]) {
      group = c.attend.heads / c.attend.kv_heads;
      head_dim = c.attend.head_dim;
      width = round_up(head_dim, kLanes);
      real = j.rows * group;
      queries = padded_queries(real, kRows);
      const ScratchLayout layout{queries, head_dim, width};
      q = scratch + layout.q();
      p = scratch + layout.p();
      keys = scratch + layout.keys();
      values = scratch + layout.values();
      segments = scratch + layout.segments();
    }
    // One pass over K and V serves the whole block, straight from the cache. (Values with scales are always made
    // floats first: once for all query heads of a group.)
    bool direct() const { return !kScaled<T> && queries <= kRows && width == head_dim; }
    // As visible_positions() says (kernels/batch.h).
    Range visible_to(const SequenceRows& rows, int64_t row) const {
      const int64_t last = rows.first_position + (rows.canvas ? 0 : row);
      return {call.attend.window > 0 ? most(0, last + 1 - call.attend.window) : 0,
              rows.canvas ? int64_t{rows.first_position} + rows.rows : last + 1};
    }
    Range visible(int64_t query) const { return visible_to(sequence, job.first_row + least(query, real - 1) / group); }
    Range visible() const { return {visible(0).lo, visible(real - 1).hi}; }
    int64_t tile_rows(int64_t first) const { return least(kRows, queries - first); }
    // Scales of K or V of the page of `position`; the codes follow.
    const Half* page_scales(const std::byte* keys_or_values, int64_t position) const {
      return reinterpret_cast<const Half*>(keys_or_values + page_offset(position) +
                                           job.kv_head * scaled_head_bytes(head_dim));
    }
    const T* codes_after(const Half* scales) const {
      return reinterpret_cast<const T*>(scales + scale_bytes(head_dim) / 2);
    }
    const T* page_keys(int64_t position) const {
      if constexpr (kScaled<T>) return codes_after(page_scales(call.keys, position));
      return reinterpret_cast<const T*>(call.keys + page_offset(position)) + job.kv_head * head_dim * kPagePositions;
    }
    // V from `position` to the end of its page.
    const T* page_values(int64_t position) const {
      return reinterpret_cast<const T*>(call.values + page_offset(position)) +
             (job.kv_head * kPagePositions + position % kPagePositions) * head_dim;
    }
    // Small jobs of a list of many prefetch the next job instead of their own next page: page by page, K during K and V
    // during V. What is in flight then outlasts the softmax between the two.
    bool far_ahead() const {
      const int64_t positions = most(job.splits, next == nullptr ? 0 : next->splits) * kSplitPositions;
      constexpr int64_t kSmall = int64_t{128} << 10;  // K and V of 256 positions and 128 dimensions in f16
      return call.far_ahead && 2 * positions * head_dim * static_cast<int64_t>(sizeof(T)) <= kSmall;
    }
    // Of the next job: the page that is as far from its first one as `page` is from this job's, or null. `half`: keys
    // or values of the layer.
    const T* next_job_page(const std::byte* half, int64_t page) const {
      if (next == nullptr) return nullptr;
      const SequenceRows& other = call.sequences[next->sequence];
      const int64_t first = most(visible().lo, int64_t{job.first_split} * kSplitPositions) / kPagePositions;
      const int64_t index = next_job_first_page() + page / kPagePositions - first;
      if (index * kPagePositions >= visible_to(other, next->first_row + next->rows - 1).hi) return nullptr;
      return reinterpret_cast<const T*>(half + static_cast<size_t>(other.pages.data()[index]) * call.page_stride) +
             next->kv_head * head_dim * kPagePositions;
    }
    int64_t next_job_first_page() const {
      const int64_t begin = visible_to(call.sequences[next->sequence], next->first_row).lo;
      return most(begin, int64_t{next->first_split} * kSplitPositions) / kPagePositions;
    }
    // What is read after V of the page at `page`: the next V of the split, then K of the next split, then that of the
    // next job.
    const T* after_values(int64_t page, Range split) const {
      if (far_ahead()) return next_job_page(call.values, page);
      const int64_t later = page + kPagePositions;
      if (later < split.hi) return page_values(later);
      if (later < visible().hi && later / kSplitPositions < job.first_split + job.splits) return page_keys(later);
      return next_job_keys();
    }
    const T* next_job_keys() const {
      if (next == nullptr) return nullptr;
      const SequenceRows& other = call.sequences[next->sequence];
      const auto page = static_cast<size_t>(next_job_first_page());
      const std::byte* keys = call.keys + static_cast<size_t>(other.pages.data()[page]) * call.page_stride;
      return reinterpret_cast<const T*>(keys) + next->kv_head * head_dim * kPagePositions;
    }
    // What is read after K of the page at `page`: the next K of the split, then V of its first page. Never null.
    const T* after_keys(int64_t page, Range split) const {
      if (far_ahead()) {
        const T* other = next_job_page(call.keys, page);
        return other != nullptr ? other : page_keys(page);
      }
      const bool more = page + kPagePositions < split.hi;
      return more ? page_keys(page + kPagePositions) : page_values(split.lo / kPagePositions * kPagePositions);
    }
    size_t page_offset(int64_t position) const {
      return static_cast<size_t>(sequence.pages.data()[position / kPagePositions]) * call.page_stride;
    }
    int64_t head(int64_t query) const { return job.kv_head * group + query % group; }
    int64_t out_offset(int64_t query) const {
      const int64_t row = sequence.first_row + job.first_row + query / group;
      return (row * call.attend.heads + head(query)) * head_dim;
    }
  };
};

}  // namespace cohort::cpu
