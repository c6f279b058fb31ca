// What the kernels of all layers share (flow.cuh: one row; flow_rows.cuh:
// more): words between blocks, the ring of weights, and norms and heads.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/flow.h"
#include "kernels/cuda/flow_choice.cuh"
#include "kernels/cuda/segments.cuh"

namespace cohort::cuda {
namespace flow {

using Shape = FlowShape;
inline constexpr int kWarps = 16, kThreads = kWarps * 32,
                     kAllThreads = kThreads + 32;
inline constexpr int kEntries = 32; // of the ring at once
inline constexpr int kHeadBytes = kPageRows * Shape::kHeadDim * 2;
inline constexpr int kRounds =
    Shape::kMaxSplits / Shape::kSplitBlocks; // splits of a block, at most
inline constexpr int kMaxPolls = 1 << 24; // seconds: then something is broken,
                                          // and an error is better than a hang

/// A kernel and the dynamic shared memory of its blocks.
struct FlowKernel {
  void (*run)(FlowArgs) = nullptr;
  int shared = 0;
};

__device__ __forceinline__ void sync() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}
__device__ __forceinline__ void put(Flagged *to, uint32_t bits, uint32_t flag) {
  const Flagged word = static_cast<Flagged>(flag) << 32 | bits;
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word)
               : "memory");
}
__device__ __forceinline__ void put(Flagged *to, float value, uint32_t flag) {
  put(to, __float_as_uint(value), flag);
}
__device__ __forceinline__ Flagged get(const Flagged *from) {
  Flagged word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
               : "=l"(word)
               : "l"(from)
               : "memory");
  return word;
}
/// N words, of which word i is at from(i), once all are of this layer.
template <int N, class From>
__device__ __forceinline__ void take(From &&from, uint32_t flag,
                                     uint32_t (&out)[N]) {
  for (int polls = 0;; ++polls) {
    Flagged words[N];
#pragma unroll
    for (int i = 0; i < N; ++i)
      words[i] = get(from(i));
    bool here = true;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      here = here && static_cast<uint32_t>(words[i] >> 32) == flag;
      out[i] = static_cast<uint32_t>(words[i]);
    }
    if (here)
      return;
    __nanosleep(40); // looking again at once is 1% slower: it keeps the memory
                     // from others
    if (polls > kMaxPolls)
      __trap();
  }
}

/// A row's logits, once they are there.
__device__ __forceinline__ void take_logits(const Flagged *from, uint32_t flag,
                                            float (&x)[kLogits]) {
  uint32_t bits[kLogits];
  take<kLogits>([&](int i) { return from + i * 32 + (threadIdx.x & 31); }, flag,
                bits);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kLogits; ++i)
    x[i] = __uint_as_float(bits[i]);
}

__device__ __forceinline__ void put(FlaggedQuad *to, uint32_t first,
                                    uint32_t second, uint32_t more,
                                    uint32_t flag) {
  const unsigned long long low =
      static_cast<unsigned long long>(second) << 32 | first;
  const unsigned long long high =
      static_cast<unsigned long long>(flag) << 32 | more;
  asm volatile("{\n"
               ".reg .b128 word;\n"
               "mov.b128 word, {%1, %2};\n"
               "st.relaxed.gpu.global.b128 [%0], word;\n"
               "}\n" ::"l"(to),
               "l"(low), "l"(high)
               : "memory");
}
__device__ __forceinline__ FlaggedQuad get(const FlaggedQuad *from) {
  unsigned long long low, high;
  asm volatile("{\n"
               ".reg .b128 word;\n"
               "ld.relaxed.gpu.global.b128 word, [%2];\n"
               "mov.b128 {%0, %1}, word;\n"
               "}\n"
               : "=l"(low), "=l"(high)
               : "l"(from)
               : "memory");
  return {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
          static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)};
}
/// Looks again at those of N words that are not of this layer yet.
template <int N, class From>
__device__ __forceinline__ void finish(From &&from, uint32_t flag,
                                       FlaggedQuad (&words)[N]) {
  for (int polls = 0;; ++polls) {
    bool here = true;
#pragma unroll
    for (int i = 0; i < N; ++i)
      here = here && words[i].flag == flag;
    if (here)
      return;
    __nanosleep(40);
    if (polls > kMaxPolls)
      __trap();
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (words[i].flag != flag)
        words[i] = get(from(i));
    }
  }
}
template <int N, class From>
__device__ __forceinline__ void take(From &&from, uint32_t flag,
                                     FlaggedQuad (&words)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    words[i] = get(from(i));
  finish<N>(from, flag, words);
}

/// Quantises a block (lane = value) and writes its words.
__device__ __forceinline__ void put_block(Flagged *to, float x, int lane,
                                          uint32_t flag) {
  const BlockScale s = block_scale(
      __reduce_max_sync(kFullMask, __float_as_uint(x) & 0x7fffffffU));
  const int q = quantise_value(x, s);
  const int sums = __reduce_add_sync(kFullMask, lane < 16 ? q : q * 65536);
  uint32_t word = static_cast<uint32_t>(q & 0xff) << (8 * (lane & 3));
  word |= __shfl_xor_sync(kFullMask, word, 1);
  word |= __shfl_xor_sync(kFullMask, word, 2);
  if ((lane & 3) == 0)
    put(to + activation_slot(lane) / 4, word, flag);
  if (lane == 1)
    put(to + 8, s.d, flag);
  if (lane == 2)
    put(to + 9, static_cast<uint32_t>(sums), flag);
}

__device__ __forceinline__ void put_block(FlaggedQuad *to, float x, int lane,
                                          uint32_t flag) {
  const BlockScale s = block_scale(
      __reduce_max_sync(kFullMask, __float_as_uint(x) & 0x7fffffffU));
  const int q = quantise_value(x, s);
  const int sums = __reduce_add_sync(kFullMask, lane < 16 ? q : q * 65536);
  uint32_t word = static_cast<uint32_t>(q & 0xff) << (8 * (lane & 3));
  word |= __shfl_xor_sync(kFullMask, word, 1);
  word |= __shfl_xor_sync(kFullMask, word, 2);
  const uint32_t upper = __shfl_xor_sync(kFullMask, word, 16);
  if (lane >= 16 || (lane & 3) != 0)
    return;
  const uint32_t more = lane == 0   ? __float_as_uint(s.d)
                        : lane == 4 ? static_cast<uint32_t>(sums)
                                    : 0U;
  put(to + lane / 4, word, upper, more, flag);
}
/// Segments of SB blocks of long formats are summed two blocks at a time by a
/// loop, for which the words move up, so that their places stay registers.
template <Format F, int SB>
inline constexpr bool kByTwo = kLong<F> &&SB % 2 == 0 && SB > 4;
template <int N, int Count>
__device__ __forceinline__ void move_up(FlaggedQuad (&words)[Count]) {
#pragma unroll
  for (int i = 0; i + N < Count; ++i)
    words[i] = words[i + N];
}
/// SB blocks more of a tile times G groups of columns whose words [G][SB] lane
/// (g, t) has: those of column g.
template <Format F, int SB, int G>
__device__ __forceinline__ void add_blocks_of(const std::byte *tile, int block,
                                              const FlaggedQuad *words, Lane at,
                                              float (&acc)[G][4]) {
#pragma unroll
  for (int b = 0; b < SB; ++b) {
    Block<F> w;
    w.load(tile, block + b, at, false);
#pragma unroll
    for (int i = 0; i < G; ++i) {
      const FlaggedQuad &word = words[i * SB + b];
      Columns c;
      c.b0 = word.first;
      c.b1 = word.second;
      c.d0 = __uint_as_float(__shfl_sync(kFullMask, word.more, at.t * 8));
      c.d1 = __uint_as_float(__shfl_sync(kFullMask, word.more, at.t * 8 + 4));
      if constexpr (Block<F>::kSums) {
        c.sums0 =
            static_cast<int>(__shfl_sync(kFullMask, word.more, at.t * 8 + 1));
        c.sums1 =
            static_cast<int>(__shfl_sync(kFullMask, word.more, at.t * 8 + 5));
      }
      w.add(acc[i], c);
    }
  }
}
/// A segment from +0.
template <Format F, int SB, int G>
__device__ __forceinline__ void segment_of(const std::byte *tile, int block,
                                           const FlaggedQuad *words, Lane at,
                                           float (&acc)[G][4]) {
  clear<G>(acc);
  if constexpr (G == 1 && kByTwo<F, SB>) {
    FlaggedQuad left[SB];
#pragma unroll
    for (int b = 0; b < SB; ++b)
      left[b] = words[b];
#pragma unroll 1
    for (int first = 0; first < SB; first += 2, move_up<2>(left))
      add_blocks_of<F, 2, 1>(tile, block + first, left, at, acc);
  } else {
    add_blocks_of<F, SB, G>(tile, block, words, at, acc);
  }
}
template <Format FA, Format FB, int SB, int G>
__device__ __forceinline__ void segment_of(bool other, const std::byte *tile,
                                           int block, const FlaggedQuad *words,
                                           Lane at, float (&acc)[G][4]) {
  if (FA != FB && other) {
    segment_of<FB, SB, G>(tile, block, words, at, acc);
  } else {
    segment_of<FA, SB, G>(tile, block, words, at, acc);
  }
}

/// Count blocks more of diagonal_of's sums, before its segments meet.
template <Format F, int SB, int Count, int Words>
__device__ __forceinline__ void add_diagonal(const std::byte *tile, int block,
                                             const FlaggedQuad (&words)[Words],
                                             Lane at, float (&acc)[4]) {
  const int mine = ((at.g >> 1) - at.t) & 3;
#pragma unroll
  for (int b = 0; b < Count; ++b) {
    typename Block<F>::Sums sums;
    Block<F> w;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w.codes(tile, block + ((at.t + i) & 3) * SB + b, at);
      sums.add(w.a, i == mine ? words[b].first : 0U,
               i == mine ? words[b].second : 0U);
    }
    w.scales(tile, block + at.t * SB + b, at);
    Columns c;
    c.d0 = __uint_as_float(__shfl_sync(kFullMask, words[b].more, at.t * 8));
    c.d1 = __uint_as_float(__shfl_sync(kFullMask, words[b].more, at.t * 8 + 4));
    if constexpr (Block<F>::kSums) {
      c.sums0 =
          static_cast<int>(__shfl_sync(kFullMask, words[b].more, at.t * 8 + 1));
      c.sums1 =
          static_cast<int>(__shfl_sync(kFullMask, words[b].more, at.t * 8 + 5));
    }
    w.finish(acc, sums, c);
  }
}
/// Four segments of a tile, SB blocks each from `block` on, times two columns:
/// a fourth of segment_of's float operations. Lane (g, t) has the words t of SB
/// blocks of segment g / 2 and column g % 2. Product i takes its k slots 4t..
/// from segment (t + i) % 4, and its column g from segment g / 2 alone:
/// elsewhere the operand is zero. So each lane's sums are those of segment t,
/// exact as ever. acc: the tree over the four segments, rows g and g + 8 by
/// columns 0 and 1, the same in all four lanes of a quad.
template <Format F, int SB>
__device__ __forceinline__ void diagonal_of(const std::byte *tile, int block,
                                            const FlaggedQuad (&words)[SB],
                                            Lane at, float (&acc)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    acc[i] = 0.0F;
  if constexpr (kByTwo<F, SB>) {
    FlaggedQuad left[SB];
#pragma unroll
    for (int b = 0; b < SB; ++b)
      left[b] = words[b];
#pragma unroll 1
    for (int first = 0; first < SB; first += 2, move_up<2>(left))
      add_diagonal<F, SB, 2>(tile, block + first, left, at, acc);
  } else {
    add_diagonal<F, SB, SB>(tile, block, words, at, acc);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    acc[i] = __fadd_rn(acc[i], __shfl_xor_sync(kFullMask, acc[i], 1));
    acc[i] = __fadd_rn(acc[i], __shfl_xor_sync(kFullMask, acc[i], 2));
  }
}
template <Format FA, Format FB, int SB>
__device__ __forceinline__ void
diagonal_of(bool other, const std::byte *tile, int block,
            const FlaggedQuad (&words)[SB], Lane at, float (&acc)[4]) {
  if (FA != FB && other) {
    diagonal_of<FB, SB>(tile, block, words, at, acc);
  } else {
    diagonal_of<FA, SB>(tile, block, words, at, acc);
  }
}

/// Where value k lies in a row that walk_row reads.
__device__ __forceinline__ int packed(int k) {
  return k / 64 * 64 + k % 16 * 4 + k / 16 % 4;
}

/// The warp that fills the ring of weights.
template <class Shared> class Filler {
public:
  __device__ Filler(std::byte *ring, Shared &sh) : ring_(ring), sh_(sh) {}
  /// Room for `bytes` in the next place, whose barrier then expects them; one
  /// lane.
  __device__ std::byte *open(uint32_t bytes) {
    const int need = static_cast<int>((bytes + 127) / 128 * 128);
    for (;;) {
      uint32_t released;
      asm volatile("ld.acquire.cta.shared.u32 %0, [%1];"
                   : "=r"(released)
                   : "r"(shared_address(&sh_.released))
                   : "memory");
      if (released == next_) {
        head_ = 0;
        break;
      }
      if (next_ - released >= kEntries)
        continue;
      const int tail = sh_.place[released % kEntries];
      if (head_ > tail) {
        if (head_ + need <= Shared::kRing)
          break;
        if (need < tail) {
          head_ = 0;
          break;
        }
      } else if (head_ + need < tail) {
        break;
      }
    }
    barrier_ = &sh_.full[next_ % kEntries];
    std::byte *to = ring_ + head_;
    sh_.place[next_ % kEntries] = head_;
    head_ += need;
    ++next_;
    barrier_expect(barrier_, bytes);
    return to;
  }
  __device__ void copy(std::byte *to, const void *from, uint32_t bytes) {
    bulk_copy(to, from, bytes, barrier_);
  }
  __device__ void push(const void *from, uint32_t bytes) {
    copy(open(bytes), from, bytes);
  }

private:
  std::byte *ring_;
  Shared &sh_;
  uint64_t *barrier_ = nullptr;
  uint32_t next_ = 0;
  int head_ = 0;
};
/// All readers of the ring's entries before `next` are done with them.
template <class Shared>
__device__ __forceinline__ void give_back(Shared &sh, uint32_t next) {
  asm volatile(
      "st.release.cta.shared.u32 [%0], %1;" ::"r"(shared_address(&sh.released)),
      "r"(next)
      : "memory");
}

/// Calls step with four packed values after the other of [hidden] floats, this
/// half-warp's lane; loads run ahead, for what follows is one chain of fma.
template <int Arrays, class Step>
__device__ __forceinline__ void walk_row(const float *const (&from)[Arrays],
                                         int lane, Step &&step) {
  constexpr int kAhead = 4, kSteps = Shape::kHidden / 64;
  float4 next[kAhead][Arrays], now[kAhead][Arrays];
  const auto load = [&](int first) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
#pragma unroll
      for (int a = 0; a < Arrays; ++a)
        next[u][a] = *reinterpret_cast<const float4 *>(
            from[a] + (first + u) * 64 + (lane & 15) * 4);
    }
  };
  load(0);
#pragma unroll 2
  for (int i = 0; i < kSteps; i += kAhead) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
#pragma unroll
      for (int a = 0; a < Arrays; ++a)
        now[u][a] = next[u][a];
    }
    if (i + kAhead < kSteps)
      load(i + kAhead);
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
      step(now[u]);
  }
}

/// squares16 of a packed row by a warp, both halves the same.
__device__ __forceinline__ float squares(const float *x, int lane) {
  float sum = 0.0F;
  const float *const from[1] = {x};
  walk_row<1>(from, lane, [&](const float4(&v)[1]) {
    sum = __fmaf_rn(v[0].x, v[0].x, sum);
    sum = __fmaf_rn(v[0].y, v[0].y, sum);
    sum = __fmaf_rn(v[0].z, v[0].z, sum);
    sum = __fmaf_rn(v[0].w, v[0].w, sum);
  });
  return tree16(sum);
}

/// norm_factor where the count is a power of two: a product with its inverse is
/// the quotient.
template <int Count>
__device__ __forceinline__ float norm_factor_of(float squares, float eps) {
  static_assert((Count & (Count - 1)) == 0);
  return __fdiv_rn(
      1.0F, __fsqrt_rn(__fadd_rn(__fmul_rn(squares, 1.0F / Count), eps)));
}

/// One head by half a warp, lane = dimension mod 16: norm and rope of x; both
/// halves of a warp come here.
__device__ __forceinline__ void head_row(const float *cosines,
                                         const float *sines, bool norm,
                                         float eps, const float (&weight)[8],
                                         bool rope, int lane, float (&x)[8]) {
  if (__any_sync(kFullMask, norm)) {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      sum = __fmaf_rn(x[i], x[i], sum);
    const float factor = norm_factor_of<Shape::kHeadDim>(tree16(sum), eps);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      x[i] = norm ? __fmul_rn(__fmul_rn(x[i], factor), weight[i]) : x[i];
  }
  if (!rope)
    return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float c = cosines[lane + i * 16], s = sines[lane + i * 16];
    const float x0 = x[i], x1 = x[i + 4];
    x[i] = __fmaf_rn(x0, c, -__fmul_rn(x1, s));
    x[i + 4] = __fmaf_rn(x0, s, __fmul_rn(x1, c));
  }
}

/// Visible positions of a split for a row at `position`; 0: none.
__device__ __forceinline__ int visible(int position, int split) {
  return max(0, min(position + 1 - split * kSplit, kSplit));
}
__device__ __forceinline__ int pages_of(int positions) {
  return (positions + kPageRows - 1) / kPageRows;
}
/// How many splits the block of this rank has.
__device__ __forceinline__ int rounds_of(int position, int rank) {
  return max(0, (position + (Shape::kSplitBlocks - rank) * kSplit) /
                    (Shape::kSplitBlocks * kSplit));
}

/// Page of the context that is number `page` of the block's.
__device__ __forceinline__ int page_of(int rank, int page) {
  return (rank + page / kSplitPages * Shape::kSplitBlocks) * kSplitPages +
         page % kSplitPages;
}

/// One warp, once their words (kFlowPartial) are there: all splits of a head,
/// Splits at most, meet in 32 of its dimensions, those from `first` on.
template <int Splits>
__device__ __forceinline__ float merge_splits(const Flagged *head, int first,
                                              int position, int lane,
                                              uint32_t flag) {
  constexpr int kAtOnce = 4;
  const int last = position / kSplit;
  const Flagged *own = head + min(lane, last) * kFlowPartial;
  const Flagged *values = head + 2 + first + lane;
  const auto of = [&](int split) {
    return values + min(split, last) * kFlowPartial;
  };
  uint32_t bits[2 + kAtOnce];
  take<2 + kAtOnce>([&](int i) { return i < 2 ? own + i : of(i - 2); }, flag,
                    bits);
  __syncwarp();
  const float m_own = __uint_as_float(bits[0]),
              l_own = __uint_as_float(bits[1]);
  const float m = key_float(__reduce_max_sync(kFullMask, float_key(m_own)));
  const float weight = numerics::exp<Ops>(__fsub_rn(m_own, m));
  float sum = 0.0F, o = 0.0F;
  const auto add = [&](int s, uint32_t value) {
    const float w = __shfl_sync(kFullMask, weight, s),
                l = __shfl_sync(kFullMask, l_own, s);
    const float v = __uint_as_float(value);
    if (s > last)
      return;
    sum = s == 0 ? __fmul_rn(w, l) : __fmaf_rn(w, l, sum);
    o = s == 0 ? __fmul_rn(w, v) : __fmaf_rn(w, v, o);
  };
#pragma unroll
  for (int s = 0; s < kAtOnce; ++s)
    add(s, bits[2 + s]);
  if constexpr (Splits > kAtOnce) {
#pragma unroll 1
    for (int from = kAtOnce; from <= last; from += kAtOnce) {
      uint32_t now[kAtOnce];
      take<kAtOnce>([&](int i) { return of(from + i); }, flag, now);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        add(from + i, now[i]);
    }
  }
  return __fmul_rn(o, __fdiv_rn(1.0F, sum));
}

} // namespace flow
} // namespace cohort::cuda
