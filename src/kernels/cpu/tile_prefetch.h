// Prefetching of weight tiles, shared by the instruction sets. Always inlined: a file compiled for an instruction set
// must not emit functions that others could link to.
#pragma once

#include "kernels/cpu/kernels.h"

namespace cohort::cpu {

/// How far ahead of its use weight data is prefetched, in bytes (docs/perf/cpu.md).
inline constexpr int64_t kPrefetchBytes = 6144;

/// One of `passes` passes over a tile. In step with its blocks, the first pass prefetches the tile from front to back
/// and then the next one; every pass prefetches its share of what is ahead into the second cache. Every block fetches
/// as many bytes as a block has, although those are no whole lines: in bursts of whole lines the memory would have to
/// wait for the arithmetic and the other way round. kHint: 3 the first cache, 2 the second. kLines: how many lines the
/// bytes of a block touch where that is known, else 0: a loop of unknown length costs 4% of a block of four rows.
template <int kHint = 3, int kLines = 0>
struct TilePrefetcher {
  const char* at = nullptr;
  const char* end = nullptr;
  const char* next = nullptr;
  int64_t step = 0, lines = 0;  // per block: bytes, and lines that they touch
  const char* ahead;
  const char* ahead_end;
  int64_t ahead_lines;

  __attribute__((always_inline)) inline explicit TilePrefetcher(const TileCall& call, int32_t pass = 0,
                                                                int32_t passes = 1) {
    const int64_t blocks = call.shape->blocks;
    if (pass == 0) {
      const int64_t size = call.shape->tile_bytes;
      const char* tile = reinterpret_cast<const char*>(call.tile);
      next = reinterpret_cast<const char*>(call.next);
      at = tile + (kPrefetchBytes < size ? kPrefetchBytes : size);
      end = tile + size;
      step = (size + blocks - 1) / blocks;
      lines = (step + 63) / 64;
    }
    const int64_t share = (call.ahead_bytes / passes + 63) / 64 * 64;
    ahead = reinterpret_cast<const char*>(call.ahead) + (call.ahead != nullptr ? share * pass : 0);
    const char* stop = reinterpret_cast<const char*>(call.ahead) + call.ahead_bytes;
    ahead_end = ahead + share < stop ? ahead + share : stop;
    ahead_lines = call.ahead != nullptr ? (share / 64 + blocks - 1) / blocks : 0;
  }
  __attribute__((always_inline)) inline void advance() {
    for (int64_t i = 0; i < ahead_lines && ahead < ahead_end; ++i, ahead += 64) __builtin_prefetch(ahead, 0, 2);
    if (__builtin_expect(at >= end, 0)) {
      if (next == nullptr) return;
      end = next + kPrefetchBytes;
      at = next;
      next = nullptr;
    }
    if constexpr (kLines > 0) {
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLines; ++i) __builtin_prefetch(at + 64 * i, 0, kHint);
    } else {
      for (int64_t i = 0; i < lines; ++i) __builtin_prefetch(at + 64 * i, 0, kHint);
    }
    at += step;
  }
};

}  // namespace cohort::cpu
