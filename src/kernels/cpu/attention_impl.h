// Attention over an Ops policy of 16 lanes; compiled once per instruction set by attention_<isa>.cpp.
//
// Both products are the same register tile, C[M rows][N vectors] = sum over k in order of a[m][k] * b[k][n], each step
// one fma, which is what rule 7 asks for:
//   scores   k = dimension, b = K of a page, [dim][32 positions] as the cache has it, a = q; rows are (row, head) pairs
//   output   k = position,  b = V, [position][dim], a = p; one sum for each segment of 64 positions
// A block of one tile (decode) converts f16 while it multiplies, since K and V are read once, and prefetches the next
// page of 8 KB meanwhile, since pages lie anywhere; a block of several tiles (prefill) converts a page or segment to
// f32 in L1 first.
//
// Rows of a tile that see different positions (the causal diagonal, the edge of a window) share the tile for the
// positions they all see and take the others one row at a time: a position that a row does not see must not touch its
// sums (0 * v could turn -0 into +0, or infinity into NaN).
//
// As in elementwise_impl.h, no inline function of the library but templates over Ops.
#pragma once

#include <limits>

#include "kernels/cpu/attention_append.h"
#include "kernels/cpu/attention_block.h"
#include "kernels/cpu/attention_tile.h"
#include "numerics/functions.h"

namespace cohort::cpu {

template <class Ops>
struct Attention : AttentionTile<Ops> {
  using typename AttentionTile<Ops>::F;
  using AttentionTile<Ops>::kLanes;
  using Half = numerics::Half;
  using Brain = numerics::Brain;
  using Eight = numerics::Eight;
  using AttentionTile<Ops>::kRows;
  static constexpr float kLowest = -std::numeric_limits<float>::infinity();

  using Blocks = AttentionBlocks<Ops>;
  using Range = typename Blocks::Range;
  template <class T>
  using Block = typename Blocks::template Block<T>;
  template <class T>
  static constexpr bool kScaled = Blocks::template kScaled<T>;

  static constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
  static constexpr int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

  template <class T>
  static void gather_queries(const Block<T>& block) {
    for (int64_t i = 0; i < block.queries; ++i) {
      const float* from = block.call.q + block.out_offset(least(i, block.real - 1));
      float* to = block.q + i * block.head_dim;
      for (int64_t d = 0; d < block.head_dim; ++d) to[d] = from[d];
    }
    float* padding = block.p + block.real * kSplitPositions;
    for (int64_t i = 0; i < (block.queries - block.real) * kSplitPositions; ++i) padding[i] = 0.0F;
  }

  // p[query][position - start] = q * k for every position that some row of the query's tile sees, in groups of 16.
  template <class T>
  static void scores(const Block<T>& block, int64_t start) {
    const Range all = block.visible().clip(start, start + kSplitPositions);
    const bool direct = block.direct();
    for (int64_t page = all.lo / kPagePositions * kPagePositions; page < all.hi; page += kPagePositions) {
      const Range seen = all.clip(page, page + kPagePositions);
      const int64_t slot = seen.lo % kPagePositions / kLanes * kLanes;
      const int64_t vectors = (seen.hi - page - slot + kLanes - 1) / kLanes;
      const T* keys = block.page_keys(page) + slot;
      if constexpr (kScaled<T>) {
        scale_keys(block, block.page_scales(block.call.keys, page) + slot, keys, vectors);
      } else if (!direct) {
        for (int64_t d = 0; d < block.head_dim; ++d) {
          for (int64_t v = 0; v < vectors; ++v) {
            Ops::store(block.keys + d * kPagePositions + v * kLanes, Ops::load(keys + d * kPagePositions + v * kLanes));
          }
        }
      }
      for (int64_t first = 0; first < block.queries; first += kRows) {
        const int64_t rows = block.tile_rows(first);
        if (block.visible(first).lo >= seen.hi || block.visible(first + rows - 1).hi <= seen.lo) continue;
        const float* q = block.q + first * block.head_dim;
        float* p = block.p + first * kSplitPositions + (page + slot - start);
        if (direct) {
          if constexpr (!kScaled<T>)
            AttentionTile<Ops>::template multiply<true, T>(
                rows,
                {q, block.head_dim, keys, kPagePositions, block.after_keys(page, all) + slot - keys, block.head_dim, p,
                 kSplitPositions, true},
                vectors);
        } else {
          AttentionTile<Ops>::template multiply<false, float>(
              rows, {q, block.head_dim, block.keys, kPagePositions, 0, block.head_dim, p, kSplitPositions, true},
              vectors);
        }
      }
    }
  }

  // K of a page of a q8_0 cache as floats.
  template <class T>
  static void scale_keys(const Block<T>& block, const Half* scales, const T* keys, int64_t vectors) {
    for (int64_t v = 0; v < vectors; ++v) {
      for (int64_t first = 0; first < block.head_dim; first += kScaledDims, scales += kPagePositions) {
        const F scale = Ops::load(scales + v * kLanes);
        for (int64_t d = first; d < least(first + kScaledDims, block.head_dim); ++d) {
          Ops::store(block.keys + d * kPagePositions + v * kLanes,
                     Ops::mul(Ops::load(keys + d * kPagePositions + v * kLanes), scale));
        }
      }
      scales -= scale_groups(block.head_dim) * kPagePositions;
    }
  }
  // V of positions [seen.lo, seen.hi), at most a segment, of a q8_0 cache as floats.
  template <class T>
  static void scale_values(const Block<T>& block, Range seen) {
    float scales[kPagePositions];
    for (int64_t page = seen.lo / kPagePositions * kPagePositions; page < seen.hi; page += kPagePositions) {
      const Half* halves = block.page_scales(block.call.values, page);
      const T* codes = block.codes_after(halves);
      const Range own = seen.clip(page, page + kPagePositions);
      for (int64_t first = 0; first < block.head_dim; first += kScaledDims, halves += kPagePositions) {
        for (int64_t i = 0; i < kPagePositions; i += kLanes) Ops::store(scales + i, Ops::load(halves + i));
        for (int64_t j = own.lo; j < own.hi; ++j) {
          const F scale = Ops::set(scales[j - page]);
          const T* from = codes + (j - page) * block.head_dim;
          float* to = block.values + j % kSegmentPositions * block.width;
          for (int64_t d = first; d < least(first + kScaledDims, block.head_dim); d += kLanes) {
            if (d + kLanes <= block.head_dim) {
              Ops::store(to + d, Ops::mul(Ops::load(from + d), scale));
              continue;
            }
            T last[kLanes] = {};
            for (int64_t i = 0; d + i < block.head_dim; ++i) last[i] = from[d + i];
            // Beyond the head a scale that is no number would leave one, which is multiplied but never stored.
            Ops::store(to + d, Ops::mul(Ops::load(last), scale));
          }
        }
      }
    }
  }

  // s = scale * p in group g, with -infinity (which no maximum and no exp notices) where the row sees nothing.
  static F scaled(const float* p, F scale, int64_t g, Range seen) {
    const F s = Ops::mul(Ops::load(p + g * kLanes), scale);
    return inside(s, Ops::set(kLowest), g, seen);
  }
  static F inside(F v, F other, int64_t g, Range seen) {
    const int64_t from = seen.lo - g * kLanes, to = seen.hi - g * kLanes;
    if (from <= 0 && to >= kLanes) return v;
    return Ops::within(v, other, static_cast<int>(most(from, 0)), static_cast<int>(least(to, kLanes)));
  }

  // p = exp(scale * p - m) over the visible positions (offsets in the split); stores m and l.
  static void softmax(float* p, float scale, Range seen, float* maximum, float* sum) {
    const F factor = Ops::set(scale);
    const int64_t begin = seen.lo / kLanes, end = (seen.hi + kLanes - 1) / kLanes;
    F highest = Ops::set(kLowest);
    for (int64_t g = begin; g < end; ++g) highest = Ops::max_number(scaled(p, factor, g, seen), highest);
    *maximum = Ops::max16(highest);
    const F m = Ops::set(*maximum), zero = Ops::set(0.0F);
    F lanes = zero;
    for (int64_t g = begin; g < end; ++g) {
      const F e = inside(numerics::exp<Ops>(Ops::sub(scaled(p, factor, g, seen), m)), zero, g, seen);
      lanes = Ops::add(lanes, e);
      Ops::store(p + g * kLanes, e);
    }
    *sum = Ops::tree16(lanes);
  }

  // Adds positions [seen.lo, seen.hi) of one segment to c for `rows` queries from `first`.
  template <class T>
  static void accumulate(const Block<T>& block, int64_t start, int64_t first, int64_t rows, Range seen, float* c,
                         bool fresh) {
    const float* p = block.p + first * kSplitPositions;
    const int64_t vectors = block.width / kLanes;
    if (!block.direct()) {
      const float* values = block.values + seen.lo % kSegmentPositions * block.width;
      AttentionTile<Ops>::template multiply<false, float>(
          rows,
          {p + (seen.lo - start), kSplitPositions, values, block.width, 0, seen.hi - seen.lo, c, block.width, fresh},
          vectors);
      return;
    }
    if constexpr (!kScaled<T>) accumulate_direct(block, start, p, rows, seen, c, fresh);
  }
  template <class T>
  static void accumulate_direct(const Block<T>& block, int64_t start, const float* p, int64_t rows, Range seen,
                                float* c, bool fresh) {
    const int64_t vectors = block.width / kLanes;
    while (!seen.empty()) {
      const int64_t page = seen.lo / kPagePositions * kPagePositions;
      const int64_t end = least(seen.hi, page + kPagePositions);
      const T* values = block.page_values(seen.lo);
      const T* next = block.after_values(page, block.visible().clip(start, start + kSplitPositions));
      AttentionTile<Ops>::template multiply<true, T>(
          rows,
          {p + (seen.lo - start), kSplitPositions, values, block.head_dim,
           next == nullptr ? 0 : next - block.page_values(page), end - seen.lo, c, block.width, fresh},
          vectors);
      fresh = false;
      seen.lo = end;
    }
  }

  static void clear(float* c, int64_t count) {
    for (int64_t i = 0; i < count; i += kLanes) Ops::store(c + i, Ops::set(0.0F));
  }

  template <class T>
  static void segment_of_tile(const Block<T>& block, int64_t start, int64_t first, int64_t rows, Range segment,
                              float* c) {
    const Range head = block.visible(first).clip(segment.lo, segment.hi);
    const Range tail = block.visible(first + rows - 1).clip(segment.lo, segment.hi);
    if (head.lo == tail.lo && head.hi == tail.hi && !head.empty()) {
      accumulate(block, start, first, rows, head, c, true);
      return;
    }
    clear(c, rows * block.width);
    const Range common = {tail.lo, head.hi};
    if (common.empty()) {
      for (int64_t i = 0; i < rows; ++i) {
        const Range own = block.visible(first + i).clip(segment.lo, segment.hi);
        if (!own.empty()) accumulate(block, start, first + i, 1, own, c + i * block.width, false);
      }
      return;
    }
    for (int64_t i = 0; i < rows; ++i) {
      const Range before = {most(block.visible(first + i).lo, segment.lo), common.lo};
      if (!before.empty()) accumulate(block, start, first + i, 1, before, c + i * block.width, false);
    }
    accumulate(block, start, first, rows, common, c, false);
    for (int64_t i = 0; i < rows; ++i) {
      const Range after = {common.hi, least(block.visible(first + i).hi, segment.hi)};
      if (!after.empty()) accumulate(block, start, first + i, 1, after, c + i * block.width, false);
    }
  }

  template <class T>
  static void convert_values(const Block<T>& block, Range seen) {
    for (int64_t j = seen.lo; j < seen.hi; ++j) {
      const T* from = block.page_values(j);
      float* to = block.values + j % kSegmentPositions * block.width;
      int64_t d = 0;
      for (; d + kLanes <= block.head_dim; d += kLanes) Ops::store(to + d, Ops::load(from + d));
      if (d < block.head_dim) {
        T last[kLanes] = {};
        for (int64_t i = 0; d + i < block.head_dim; ++i) last[i] = from[d + i];
        Ops::store(to + d, Ops::load(last));
      }
    }
  }

  // o[query] = tree over the segments of sum p * v.
  template <class T>
  static void outputs(const Block<T>& block, int64_t start, float* o) {
    const int64_t size = block.queries * block.width;
    const Range all = block.visible().clip(start, start + kSplitPositions);
    bool has[4];
    static_assert(kSplitPositions == 4 * kSegmentPositions);
    for (int64_t s = 0; s < 4; ++s) {
      float* c = block.segments + s * size;
      const Range segment = all.clip(start + s * kSegmentPositions, start + (s + 1) * kSegmentPositions);
      has[s] = !segment.empty();
      if (!has[s]) continue;
      if constexpr (kScaled<T>) {
        scale_values(block, segment);
      } else if (!block.direct()) {
        convert_values(block, segment);
      }
      for (int64_t first = 0; first < block.queries; first += kRows) {
        segment_of_tile(block, start, first, block.tile_rows(first), segment, c + first * block.width);
      }
    }
    add_segments(block.segments, size, has, o);
  }
  // (c0 + c1) + (c2 + c3), where segments that no row sees are +0 and need not exist in memory. (Adding +0 is not
  // nothing: it makes +0 of -0.)
  static void add_segments(const float* c, int64_t size, const bool* has, float* o) {
    const F zero = Ops::set(0.0F);
    const auto sum = [&](auto&& left, auto&& right) {
      for (int64_t i = 0; i < size; i += kLanes) Ops::store(o + i, Ops::add(left(i), right(i)));
    };
    const auto segment = [&](int s) { return [c, size, s](int64_t i) { return Ops::load(c + s * size + i); }; };
    const auto none = [zero](int64_t) { return zero; };
    const auto pair = [&](int s) {
      return
          [c, size, s](int64_t i) { return Ops::add(Ops::load(c + s * size + i), Ops::load(c + (s + 1) * size + i)); };
    };
    if (has[0] && !has[1] && !has[2] && !has[3]) return sum(segment(0), none);
    if (has[0] && has[1] && !has[2] && !has[3]) return sum(pair(0), none);
    if (has[0] && has[1] && has[2] && has[3]) return sum(pair(0), pair(2));
    const auto one = [&](int s) {
      return [c, size, has, zero, s](int64_t i) { return has[s] ? Ops::load(c + s * size + i) : zero; };
    };
    const auto two = [&](int s) {
      return [left = one(s), right = one(s + 1)](int64_t i) { return Ops::add(left(i), right(i)); };
    };
    sum(two(0), two(2));
  }

  // Merges the splits of every query of the block and writes its output. Replaces m by the weights.
  template <class T>
  static void finish(const Block<T>& block, float* partials) {
    const PartialLayout layout{block.queries, block.job.block_splits, block.width};
    for (int64_t i = 0; i < block.real; ++i) {
      const Range seen = block.visible(i);
      const int64_t first = seen.lo / kSplitPositions - block.job.block_split;
      const int64_t count = (seen.hi - 1) / kSplitPositions - block.job.block_split + 1 - first;
      float* w = partials + layout.maxima() + i * layout.splits + first;
      const float* l = partials + layout.sums() + i * layout.splits + first;
      F highest = Ops::set(kLowest);
      for (int64_t s = 0; s < count; s += kLanes) {
        highest = Ops::max_number(Ops::load_part(w + s, part(count - s), kLowest), highest);
      }
      const float* sink = block.call.sinks == nullptr ? nullptr : block.call.sinks + block.head(i);
      if (sink != nullptr) highest = Ops::max_number(Ops::set(*sink), highest);
      const F m = Ops::set(Ops::max16(highest));
      for (int64_t s = 0; s < count; s += kLanes) {
        const int n = part(count - s);
        Ops::store_part(w + s, numerics::exp<Ops>(Ops::sub(Ops::load_part(w + s, n, 0.0F), m)), n);
      }
      float sum = w[0] * l[0];
      for (int64_t s = 1; s < count; ++s) sum = __builtin_fmaf(w[s], l[s], sum);
      if (sink != nullptr) {
        float e[kLanes];  // all alike
        Ops::store(e, numerics::exp<Ops>(Ops::sub(Ops::set(*sink), m)));
        sum += e[0];
      }
      const F inverse = Ops::set(1.0F / sum);
      const int64_t stride = block.queries * block.width;
      const float* o = partials + layout.outputs() + first * stride + i * block.width;
      float* out = block.call.out + block.out_offset(i);
      for (int64_t d = 0; d < block.head_dim; d += kLanes) {
        F acc = Ops::mul(Ops::set(w[0]), Ops::load(o + d));
        for (int64_t s = 1; s < count; ++s) acc = Ops::fma(Ops::set(w[s]), Ops::load(o + s * stride + d), acc);
        Ops::store_part(out + d, Ops::mul(acc, inverse), part(block.head_dim - d));
      }
    }
  }
  static int part(int64_t rest) { return static_cast<int>(least(rest, kLanes)); }

  template <class T>
  static void run_as(const AttentionCall& call, const AttentionJob& job, const AttentionJob* next, float* scratch) {
    const Block<T> block(call, job, next, scratch);
    const PartialLayout layout{block.queries, job.block_splits, block.width};
    float* partials = job.partials < 0 ? scratch + ScratchLayout{block.queries, block.head_dim, block.width}.partials()
                                       : call.shared + job.partials;
    gather_queries(block);
    for (int64_t split = job.first_split; split < job.first_split + job.splits; ++split) {
      const int64_t start = split * kSplitPositions, at = split - job.block_split;
      scores(block, start);
      for (int64_t i = 0; i < block.real; ++i) {
        const Range seen = block.visible(i).clip(start, start + kSplitPositions);
        if (seen.empty()) continue;  // finish() skips it too
        softmax(block.p + i * kSplitPositions, call.attend.scale, {seen.lo - start, seen.hi - start},
                partials + layout.maxima() + i * layout.splits + at, partials + layout.sums() + i * layout.splits + at);
      }
      outputs(block, start, partials + layout.outputs() + at * block.queries * block.width);
    }
    if (job.partials < 0) finish(block, partials);
  }

  static void run(const AttentionCall& call, const AttentionJob& job, const AttentionJob* next, float* scratch) {
    if (call.type == TensorType::f32) return run_as<float>(call, job, next, scratch);
    if (call.type == TensorType::f16) return run_as<Half>(call, job, next, scratch);
    if (call.type == TensorType::q8_0) return run_as<Eight>(call, job, next, scratch);
    run_as<Brain>(call, job, next, scratch);
  }
  static void merge(const AttentionCall& call, const AttentionJob& job) {
    finish(Block<float>(call, job, nullptr, call.shared), call.shared + job.partials);
  }

  static constexpr AttentionKernels table() { return {kRows, AttentionAppend<Ops>::append, run, merge}; }
};

}  // namespace cohort::cpu
