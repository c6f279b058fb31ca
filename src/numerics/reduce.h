// Canonical reductions (docs/NUMERICS.md, rules 1, 2, 4, 6): the scalar definition that every kernel must equal.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

namespace cohort::numerics {

inline constexpr int kLanes = 16;
inline constexpr int kBlock = 32;        // values that share one activation scale
inline constexpr int kMaxSegments = 32;  // rule 4
inline constexpr int kMinSegmentBlocks = 4;
inline constexpr float kTinyAmax = 0x1p-100F;  // rule 2: below this a block is zero

/// tree16: lanes j and j+8, then +4, +2, +1. Destroys `lanes`.
inline float tree16(float* lanes) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] = lanes[j] + lanes[j + half];
  }
  return lanes[0];
}

/// tree: neighbours in pairs. `count` is a power of two. Destroys `sums`.
inline float tree(float* sums, int count) {
  for (; count > 1; count /= 2) {
    for (int j = 0; j < count / 2; ++j) sums[j] = sums[2 * j] + sums[2 * j + 1];
  }
  return sums[0];
}

float dot16(const float* x, const float* w, int64_t count);

inline float sum16(const float* x, int64_t count) {
  float lanes[kLanes] = {};
  for (int64_t k = 0; k < count; ++k) lanes[k % kLanes] += x[k];
  return tree16(lanes);
}

float squares16(const float* x, int64_t count);

/// Rule 4: the number of segments that K (a multiple of 32) is cut into.
constexpr int segments_of(int64_t k) {
  const int64_t blocks = k / kBlock;
  int segments = 1;
  while (segments < kMaxSegments && blocks % (segments * 2) == 0 && blocks / (segments * 2) >= kMinSegmentBlocks)
    segments *= 2;
  return segments;
}

static_assert(segments_of(256) == 2 && segments_of(704) == 2 && segments_of(768) == 4 && segments_of(1024) == 8);
static_assert(segments_of(2048) == 16 && segments_of(2816) == 8 && segments_of(4096) == 32 && segments_of(96) == 1);

/// Rule 2: quantises x[count] (a multiple of 32) to q[count] and one scale per block d[count / 32].
void quantise_row(const float* x, int64_t count, int8_t* q, float* d);

/// p = softmax(x) in place (rule 6).
void softmax(std::span<float> x);

/// y = rms_norm(x) * w; w may be null. x and y may be the same.
void rms_norm(const float* x, const float* w, float eps, int64_t count, float* y);

}  // namespace cohort::numerics
