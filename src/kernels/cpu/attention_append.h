// Storing new rows of K and V in the cache, rounded to its type. Templates over Ops for the same reason as in
// attention_impl.h.
#pragma once

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_layout.h"
#include "numerics/cached.h"

namespace cohort::cpu {

template <class Ops>
struct AttentionAppend {
  using F = typename Ops::F;
  using Half = numerics::Half;
  using Brain = numerics::Brain;
  using Eight = numerics::Eight;
  static constexpr int kLanes = 16;

  static constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
  static int part(int64_t rest) { return static_cast<int>(least(rest, kLanes)); }

  template <class T>
  static void append_as(const AttentionCall& call, const SequenceRows& sequence, int32_t first, int32_t rows,
                        const float* k, const float* v) {
    const int64_t head_dim = call.attend.head_dim;
    const int64_t kv_width = call.attend.kv_heads * head_dim;
    for (int64_t row = first; row < first + rows; ++row) {
      const int64_t position = sequence.first_position + row, slot = position % kPagePositions;
      const size_t page = static_cast<size_t>(sequence.pages.data()[position / kPagePositions]) * call.page_stride;
      T* keys = reinterpret_cast<T*>(call.keys + page) + slot;
      T* values = reinterpret_cast<T*>(call.values + page) + slot * head_dim;
      const float* row_k = k + (sequence.first_row + row) * kv_width;
      const float* row_v = v + (sequence.first_row + row) * kv_width;
      for (int64_t h = 0; h < call.attend.kv_heads; ++h) {
        for (int64_t d = 0; d < head_dim; d += kLanes) {
          const int n = part(head_dim - d);
          T buffer[kLanes];
          Ops::store(buffer, Ops::load_part(row_k + h * head_dim + d, n, 0.0F));
          T* column = keys + (h * head_dim + d) * kPagePositions;
          T* to = values + h * kPagePositions * head_dim + d;
          if (n == kLanes) {
            for (int i = 0; i < kLanes; ++i) column[i * kPagePositions] = buffer[i];
            Ops::store(to, Ops::load(row_v + h * head_dim + d));
            continue;
          }
          for (int i = 0; i < n; ++i) column[i * kPagePositions] = buffer[i];
          Ops::store(buffer, Ops::load_part(row_v + h * head_dim + d, n, 0.0F));
          for (int i = 0; i < n; ++i) to[i] = buffer[i];
        }
      }
    }
  }

  // `count` values, at most kScaledDims, become codes that lie `stride` apart, and their scale: the largest of them is
  // 127. Where one is no finite number, the scale is none, and so is everything read with it.
  static void append_scaled(const float* x, int64_t count, Half* scale, Eight* codes, int64_t stride) {
    F largest = Ops::set(0.0F), probe = Ops::set(0.0F);
    for (int64_t d = 0; d < count; d += kLanes) {
      const F v = Ops::load_part(x + d, part(count - d), 0.0F);
      largest = Ops::max_number(Ops::neg(v), Ops::max_number(v, largest));
      probe = Ops::fma(v, Ops::set(0.0F), probe);
    }
    const float wanted = Ops::max16(largest) / 127.0F;
    constexpr float kLargestHalf = 65504.0F;
    Half rounded[kLanes];
    Ops::store(rounded, Ops::set((wanted < kLargestHalf ? wanted : kLargestHalf) + Ops::tree16(probe)));
    *scale = rounded[0];
    float step[kLanes];
    Ops::store(step, Ops::load(rounded));
    const F inverse = Ops::set(step[0] > 0.0F ? 1.0F / step[0] : 0.0F), lowest = Ops::set(-127.0F);
    for (int64_t d = 0; d < count; d += kLanes) {
      const int n = part(count - d);
      F q = Ops::rint(Ops::mul(Ops::load_part(x + d, n, 0.0F), inverse));
      q = Ops::neg(Ops::max_number(Ops::neg(Ops::max_number(q, lowest)), lowest));
      float values[kLanes];
      Ops::store(values, q);
      for (int i = 0; i < n; ++i) codes[(d + i) * stride].code = static_cast<int8_t>(values[i]);
    }
  }

  static void append_q8(const AttentionCall& call, const SequenceRows& sequence, int32_t first, int32_t rows,
                        const float* k, const float* v) {
    const int64_t head_dim = call.attend.head_dim, kv_heads = call.attend.kv_heads;
    for (int64_t row = first; row < first + rows; ++row) {
      const int64_t position = sequence.first_position + row, slot = position % kPagePositions;
      const size_t page = static_cast<size_t>(sequence.pages.data()[position / kPagePositions]) * call.page_stride;
      for (int64_t h = 0; h < kv_heads; ++h) {
        const int64_t from = ((sequence.first_row + row) * kv_heads + h) * head_dim;
        std::byte* keys = call.keys + page + h * scaled_head_bytes(head_dim);
        std::byte* values = call.values + page + h * scaled_head_bytes(head_dim);
        auto* key_codes = reinterpret_cast<Eight*>(keys + scale_bytes(head_dim));
        auto* value_codes = reinterpret_cast<Eight*>(values + scale_bytes(head_dim));
        for (int64_t d = 0; d < head_dim; d += kScaledDims) {
          const int64_t count = least(kScaledDims, head_dim - d), at = d / kScaledDims * kPagePositions + slot;
          append_scaled(k + from + d, count, reinterpret_cast<Half*>(keys) + at, key_codes + d * kPagePositions + slot,
                        kPagePositions);
          append_scaled(v + from + d, count, reinterpret_cast<Half*>(values) + at, value_codes + slot * head_dim + d,
                        1);
        }
      }
    }
  }

  static void append(const AttentionCall& call, const SequenceRows& sequence, int32_t first, int32_t rows,
                     const float* k, const float* v) {
    if (call.type == TensorType::f32) return append_as<float>(call, sequence, first, rows, k, v);
    if (call.type == TensorType::f16) return append_as<Half>(call, sequence, first, rows, k, v);
    if (call.type == TensorType::q8_0) return append_q8(call, sequence, first, rows, k, v);
    append_as<Brain>(call, sequence, first, rows, k, v);
  }
};

}  // namespace cohort::cpu
