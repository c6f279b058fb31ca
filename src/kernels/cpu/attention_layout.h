// Sizes shared by the plan and the kernels of attention. Everything is constexpr and in floats.
#pragma once

#include <cstdint>

#include "kv/cache.h"

namespace cohort::cpu {

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// (row, head) pairs after padding: whole tiles, then the smallest of 1, 2, 4 and tile_rows that holds the rest.
constexpr int64_t padded_queries(int64_t queries, int64_t tile_rows) {
  const int64_t rest = queries % tile_rows;
  const int64_t tail = rest == 0 ? 0 : rest <= 2 ? rest : rest <= 4 ? 4 : tile_rows;
  return queries - rest + tail;
}

/// Partial results of a block: m [queries, splits], l [queries, splits], o [splits, queries, width].
struct PartialLayout {
  int64_t queries, splits, width;
  constexpr int64_t maxima() const { return 0; }
  constexpr int64_t sums() const { return round_up(queries * splits, 16); }
  constexpr int64_t outputs() const { return 2 * round_up(queries * splits, 16); }
  constexpr int64_t floats() const { return outputs() + splits * queries * width; }
};

/// What a thread needs for a job besides partial results.
struct ScratchLayout {
  int64_t queries, head_dim, width;
  constexpr int64_t q() const { return 0; }                                            // [queries, head_dim]
  constexpr int64_t p() const { return q() + round_up(queries * head_dim, 16); }       // [queries, 256]
  constexpr int64_t keys() const { return p() + queries * kSplitPositions; }           // [head_dim, 32]
  constexpr int64_t values() const { return keys() + head_dim * kPagePositions; }      // [64, width]
  constexpr int64_t segments() const { return values() + kSegmentPositions * width; }  // [4, queries, width]
  constexpr int64_t partials() const { return segments() + 4 * queries * width; }
};

}  // namespace cohort::cpu
