// Tile kernels for AVX-512 VNNI.
//
// One call: 16 outputs (the lanes) times up to 16 rows. A block's weights are decoded once into eight vectors of
// unsigned bytes and stay in registers while every row of the chunk takes its eight dpbusd, whose other
// operand is four activations broadcast from memory. The accumulator starts at minus bias times the sum of the row's
// activations, so unsigned codes cost nothing. Per row and block: 8 dpbusd and 3 to 7 float operations on two ports.
// What bounds it: one to about 16 rows, memory (docs/perf/cpu.md), so prefetch matters; from there the two vector
// ports.
#pragma once

#include <array>
#include <utility>

#include "kernels/cpu/linear_avx512_impl.h"
#include "kernels/cpu/linear_lowbit.h"
#include "kernels/cpu/tile_prefetch.h"

namespace cohort::cpu {
namespace {

// --- dot products of a row's block with the eight vectors -------------------------------------------------------

/// An instruction with its broadcast: compilers make two of the intrinsics, which fill the reorder buffer sooner.
COHORT_INLINE __m512i step(__m512i acc, __m512i w, const int8_t* q) {
  asm("vpdpbusd %1%{1to16%}, %2, %0" : "+v"(acc) : "m"(*reinterpret_cast<const int32_t*>(q)), "v"(w));
  return acc;
}

/// Adds the dot products of kVectors vectors (4 values each) of N rows to t. Rows are interleaved because a chain of
/// dpbusd has five cycles of latency a link; with one or two rows a row is cut into several chains instead.
template <int N, int kVectors>
COHORT_INLINE void dots(__m512i* t, const __m512i* w, const int8_t* q) {
  constexpr int kChains = N == 1 ? 4 : N == 2 ? 2 : 1;
  __m512i chain[kChains][N];
#pragma GCC unroll 4
  for (int c = 1; c < kChains; ++c) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) chain[c][n] = _mm512_setzero_si512();
  }
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) chain[0][n] = t[n];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) chain[i % kChains][n] = step(chain[i % kChains][n], w[i], q + n * kBlockValues + 4 * i);
  }
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    if constexpr (kChains == 4) {
      t[n] = _mm512_add_epi32(_mm512_add_epi32(chain[0][n], chain[1][n]), _mm512_add_epi32(chain[2][n], chain[3][n]));
    } else if constexpr (kChains == 2) {
      t[n] = _mm512_add_epi32(chain[0][n], chain[1][n]);
    } else {
      t[n] = chain[0][n];
    }
  }
}

/// Accumulators that already hold minus bias times the sum of the activations, as the bits of a float (SumKind).
template <SumKind kStart, int N>
COHORT_INLINE void start(__m512i* t, const ActivationChunk& x, int64_t at) {
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    if constexpr (kStart == kNoSum) {
      t[n] = _mm512_set1_epi32(kRealBits);
    } else {
      t[n] = set_int(x.sums[kStart] + at + n);
    }
  }
}

/// One block of N rows.
template <int N, class Scales>
COHORT_INLINE void add_block(__m512* acc, const Scales& s, const __m512i* w, const int8_t* q, const ActivationChunk& x,
                             int64_t at) {
  __m512i t[N], high[N];
  start<Scales::kStart, N>(t, x, at);
  if constexpr (Scales::kHalves) {
    start<Scales::kStartHigh, N>(high, x, at);
    dots<N, 4>(t, w, q);
    dots<N, 4>(high, w + 4, q + 16);
  } else {
    dots<N, 8>(t, w, q);
  }
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n)
    acc[n] = s.template finish<true>(acc[n], t[n], Scales::kHalves ? high[n] : t[n], x, at + n);
}

/// One block of up to sixteen rows, four at once.
template <int kRows, class Scales>
COHORT_INLINE void add_rows(__m512* acc, const Scales& s, const __m512i* w, const int8_t* q, const ActivationChunk& x,
                            int64_t at) {
  if constexpr (kRows <= 4) {
    add_block<kRows>(acc, s, w, q, x, at);
  } else {
    constexpr int kFirst = (kRows + 1) / 2;
    add_rows<kFirst>(acc, s, w, q, x, at);
    add_rows<kRows - kFirst>(acc + kFirst, s, w, q + kFirst * kBlockValues, x, at + kFirst);
  }
}

// --- the walk over K --------------------------------------------------------------------------------------------

/// Blocks of many bytes need more lines on their way than the first cache has buffers for.
template <class Quants>
constexpr int prefetch_hint() {
  return Quants::kBytes >= 256 ? 2 : 3;
}

/// Lines that a block and its scales touch, or 0 where scales do not say their size.
template <class Quants, class Scales>
constexpr int block_lines() {
  if constexpr (requires { Scales::kBytes; }) {
    return (Quants::kBytes + Scales::kBytes + 63) / 64;
  } else {
    return 0;
  }
}

/// A chunk of kRows rows.
template <class Quants, class Scales, int kRows>
void tile_rows(const TileCall& call) {
  const PackedShape& shape = *call.shape;
  const ActivationChunk& x = *call.x;
  const std::byte* scales = call.tile;
  const std::byte* quants = call.tile + shape.scale_bytes;
  const int32_t per_segment = shape.blocks / shape.segments;
  // Finished segments wait here for their neighbour, as the carries of a binary counter.
  __m512 waiting[6][kRows];
  TilePrefetcher<prefetch_hint<Quants>(), block_lines<Quants, Scales>()> prefetcher(call);
  const Quants decoder;
  Scales s;
  const int8_t* activations = activations_for<Quants>(x);
  int64_t block = 0;
  for (int32_t segment = 0; segment < shape.segments; ++segment) {
    __m512 acc[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
    for (int32_t i = 0; i < per_segment; ++i, ++block) {
      __m512i w[8];
      decoder.decode(quants + block * Quants::kBytes, w);
      load_scales(s, scales, block, block == 0);
      const int64_t at = block * kRows;
      const int8_t* q = activations + at * kBlockValues;
      add_rows<kRows>(acc, s, w, q, x, at);
      // A prefetch that waits for a line buffer holds up the loads behind it: those of the block are before it.
      prefetcher.advance();
    }
    int level = 0;
    for (int32_t carry = segment; (carry & 1) != 0; carry >>= 1, ++level) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) acc[r] = _mm512_add_ps(waiting[level][r], acc[r]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) waiting[level][r] = acc[r];
  }
  const int top = __builtin_ctz(static_cast<unsigned>(shape.segments));
  const auto mask = static_cast<__mmask16>((1U << call.outputs) - 1);
  for (int r = 0; r < kRows; ++r) _mm512_mask_storeu_ps(call.out + r * call.out_stride, mask, waiting[top][r]);
}

// --- more than eight rows of weights that are slow to decode: a run of blocks is decoded to the first cache once
// ------

constexpr int kRunBlocks = 8;

struct Run {
  const std::byte* scales;
  const __m512i (*w)[8];
  int64_t block;  // the first
  int32_t count;
};

/// Adds a run's blocks to the sums of rows first .. first + kRows.
template <class Scales, int kRows>
void add_run(const Run& run, const ActivationChunk& x, const int8_t* activations, int32_t first, __m512* sums) {
  __m512 acc[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) acc[r] = sums[first + r];
  Scales s;
  for (int32_t i = 0; i < run.count; ++i) {
    load_scales(s, run.scales, run.block + i, i == 0);
    const int64_t at = (run.block + i) * x.rows + first;
    add_rows<kRows>(acc, s, run.w[i], activations + at * kBlockValues, x, at);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sums[first + r] = acc[r];
}

template <class Scales>
constexpr auto run_kernel(int32_t rows) {
  return rows == 4   ? add_run<Scales, 4>
         : rows == 5 ? add_run<Scales, 5>
         : rows == 6 ? add_run<Scales, 6>
         : rows == 7 ? add_run<Scales, 7>
                     : add_run<Scales, 8>;
}

template <class Quants, class Scales>
void tile_runs(const TileCall& call) {
  const PackedShape& shape = *call.shape;
  const ActivationChunk& x = *call.x;
  const std::byte* quants = call.tile + shape.scale_bytes;
  const int32_t per_segment = shape.blocks / shape.segments;
  const int32_t half = (x.rows + 1) / 2;
  const auto first_rows = run_kernel<Scales>(half), other_rows = run_kernel<Scales>(x.rows - half);
  const int8_t* activations = activations_for<Quants>(x);
  const Quants decoder;
  TilePrefetcher<prefetch_hint<Quants>()> prefetcher(call);
  __m512 waiting[6][kChunkRows];  // finished segments, as the carries of a binary counter
  __m512i w[kRunBlocks][8];
  int64_t block = 0;
  for (int32_t segment = 0; segment < shape.segments; ++segment) {
    __m512 sums[kChunkRows];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    for (int32_t left = per_segment; left > 0; left -= kRunBlocks) {
      const Run run = {call.tile, w, block, left < kRunBlocks ? left : kRunBlocks};
      for (int32_t i = 0; i < run.count; ++i, ++block) {
        prefetcher.advance();
        decoder.decode(quants + block * Quants::kBytes, w[i]);
      }
      first_rows(run, x, activations, 0, sums);
      other_rows(run, x, activations, half, sums);
    }
    int level = 0;
    for (int32_t carry = segment; (carry & 1) != 0; carry >>= 1, ++level) {
      for (int32_t r = 0; r < x.rows; ++r) sums[r] = _mm512_add_ps(waiting[level][r], sums[r]);
    }
    for (int32_t r = 0; r < x.rows; ++r) waiting[level][r] = sums[r];
  }
  const int top = __builtin_ctz(static_cast<unsigned>(shape.segments));
  const auto mask = static_cast<__mmask16>((1U << call.outputs) - 1);
  for (int32_t r = 0; r < x.rows; ++r) _mm512_mask_storeu_ps(call.out + r * call.out_stride, mask, waiting[top][r]);
}

/// All rows of a chunk at once: eight vectors of weights, sixteen accumulators, four dot products, scales and constants
/// just fit into 32 registers, and 6 to 14% are gained over two passes that decode twice.
template <class Quants, class Scales>
void tile_all(const TileCall& call) {
  const auto run = [&]<int... kLess>(std::integer_sequence<int, kLess...>) {
    (void)((call.x->rows == kLess + 1 && (tile_rows<Quants, Scales, kLess + 1>(call), true)) || ...);
  };
  if constexpr (requires { Quants::kSlow; }) {
    if (call.x->rows > 8) return tile_runs<Quants, Scales>(call);
    run(std::make_integer_sequence<int, 8>());
  } else {
    run(std::make_integer_sequence<int, kChunkRows>());
  }
}

/// Tiles of the formats of four and more bits, in the order of their layouts. A template, so that only files that ask
/// for them make them, each with its own instructions.
template <class = void>
constexpr std::array<TileKernel, kWideLayouts> wide_tiles() {
  return {tile_all<Nibbles, One<kNeg8>>,   tile_all<Nibbles, OneMin>,
          tile_all<FiveBits, One<kNeg16>>, tile_all<FiveBits, OneMin>,
          tile_all<Bytes, One<kNeg128>>,   tile_all<Nibbles, KMin>,
          tile_all<FiveBits, KMin>,        tile_all<SixBits, KSixteen<kNeg32Low, kNeg32High>>,
          tile_all<Bytes, Affine>};
}

}  // namespace
}  // namespace cohort::cpu
