// Prefetching of weight tiles, shared by the instruction sets. Always inlined: a file compiled for an instruction set
// must not emit functions that others could link to.
#pragma once

#include "kernels/cpu/kernels.h"

namespace cohort::cpu {

/// How far ahead of its use weight data is prefetched, in bytes (docs/perf/cpu.md).
inline constexpr int64_t kPrefetchBytes = 6144;

/// Prefetches a tile from front to back and then the next one, in step with the blocks.
struct TilePrefetcher {
  const char* at;
  const char* end;
  const char* next;
  int64_t lines;  // per block

  __attribute__((always_inline)) inline explicit TilePrefetcher(const TileCall& call) {
    const int64_t size = call.shape->tile_bytes;
    const char* tile = reinterpret_cast<const char*>(call.tile);
    next = reinterpret_cast<const char*>(call.next);
    at = tile + (kPrefetchBytes < size ? kPrefetchBytes : size);
    end = tile + size;
    lines = (size / call.shape->blocks + 63) / 64;
  }
  __attribute__((always_inline)) inline void advance() {
    if (__builtin_expect(at >= end, 0)) {
      if (next == nullptr) return;
      end = next + kPrefetchBytes;
      at = next;
      next = nullptr;
    }
    for (int64_t i = 0; i < lines; ++i) __builtin_prefetch(at + 64 * i, 0, 3);
    at += 64 * lines;
  }
};

}  // namespace cohort::cpu
