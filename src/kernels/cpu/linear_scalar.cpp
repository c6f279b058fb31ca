// The definition in plain C++ over the packed layout: the fallback of machines without AVX2, and a second oracle.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/layout_lowbit.h"
#include "numerics/reduce.h"
#include "quant/half.h"

namespace cohort::cpu {
namespace {

using numerics::kMaxSegments;

void accumulate(const PackedBlock& w, bool two_groups, bool has_offset, const int8_t* q, float d, float& acc) {
  int32_t dot[2] = {0, 0}, sum[2] = {0, 0};
  for (int j = 0; j < kBlockValues; ++j) {
    dot[j / 16] += int32_t{w.code[j]} * q[j];
    sum[j / 16] += q[j];
  }
  if (two_groups) {
    for (int half = 0; half < 2; ++half)
      acc = std::fma(w.d[half] * d, static_cast<float>(w.scale[half] * dot[half]), acc);
    return;
  }
  acc = std::fma(w.d[0] * d, static_cast<float>(w.scale[0] * dot[0] + w.scale[1] * dot[1]), acc);
  if (!has_offset) return;
  acc = std::fma(w.d_offset * d, static_cast<float>(w.offset[0] * sum[0] + w.offset[1] * sum[1]), acc);
}

void tile_scalar(const TileCall& call) {
  const PackedShape& shape = *call.shape;
  const ActivationChunk& x = *call.x;
  const ScaleStore scales = layout_info(shape.layout).scales;
  const bool two_groups = scales == ScaleStore::e4m3_two;
  const bool has_offset = scales == ScaleStore::one_min || scales == ScaleStore::k_min ||
                          scales == ScaleStore::affine || scales == ScaleStore::k_pairs;
  const int32_t per_segment = shape.blocks / shape.segments;
  for (int32_t lane = 0; lane < call.outputs; ++lane) {
    float sums[kChunkRows][kMaxSegments] = {};
    for (int32_t b = 0; b < shape.blocks; ++b) {
      PackedBlock w;
      read_block(call.tile, shape, b, lane, w);
      for (int32_t r = 0; r < x.rows; ++r) {
        const int64_t at = int64_t{b} * x.rows + r;
        accumulate(w, two_groups, has_offset, x.q + at * kBlockValues, x.d[at], sums[r][b / per_segment]);
      }
    }
    for (int32_t r = 0; r < x.rows; ++r) call.out[r * call.out_stride + lane] = numerics::tree(sums[r], shape.segments);
  }
}

float value_of(const std::byte* row, TensorType type, int64_t k) {
  if (type == TensorType::f32) {
    float value;
    std::memcpy(&value, row + 4 * k, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, row + 2 * k, 2);
  return type == TensorType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

void float_rows_scalar(const FloatCall& call) {
  for (int32_t o = 0; o < call.outputs; ++o) {
    const std::byte* row = call.weight + static_cast<size_t>(o) * call.row_bytes;
    for (int32_t r = 0; r < call.rows; ++r) {
      float lanes[numerics::kLanes] = {};
      for (int64_t k = 0; k < call.cols; ++k) {
        float& lane = lanes[k % numerics::kLanes];
        lane = std::fma(call.x[r][k], value_of(row, call.type, k), lane);
      }
      call.out[r][o] = numerics::tree16(lanes);
    }
  }
}

void quantise_scalar(const float* x, int64_t blocks, const ActivationChunk& chunk, int32_t row) {
  for (int64_t b = 0; b < blocks; ++b, x += kBlockValues) {
    const int64_t at = b * chunk.rows + row;
    int8_t* q = chunk.q + at * kBlockValues;
    numerics::quantise_row(x, kBlockValues, q, chunk.d + at);
    if (chunk.transposed != nullptr) {
      for (int j = 0; j < kBlockValues; ++j) chunk.transposed[at * kBlockValues + transposed_place(j)] = q[j];
    }
    if (chunk.strided != nullptr) {
      for (int j = 0; j < kBlockValues; ++j) chunk.strided[at * kBlockValues + strided_place(j)] = q[j];
    }
    int32_t part[3] = {0, 0, 0};
    for (int j = 0; j < 16; ++j) {
      part[1] += q[j];
      part[2] += q[j + 16];
    }
    part[0] = part[1] + part[2];
    chunk.store_sums(at, part);
  }
}

void combine_scalar(const CombineCall& call) {
  for (int32_t i = 0; i < call.outputs; ++i) {
    float y = 0.0F;
    for (int32_t s = 0; s < call.top_k; ++s) {
      const float d = call.partials[call.places[s] * call.width + i];
      y = s == 0 ? call.weights[s] * d : std::fma(call.weights[s], d, y);
    }
    call.out[i] = y;
  }
}

void decode_fp8_scalar(const std::byte* from, int64_t blocks, float* out) {
  decode_row(TensorType::fp8_e4m3, from, out, blocks * kBlockValues);
}

}  // namespace

constinit const LinearKernels kScalarKernels = [] {
  LinearKernels kernels{};
  for (auto& tile : kernels.tile) tile = tile_scalar;
  kernels.float_rows = float_rows_scalar;
  kernels.quantise = quantise_scalar;
  kernels.combine = combine_scalar;
  kernels.decode_fp8 = decode_fp8_scalar;
  return kernels;
}();

const LinearKernels& linear_kernels(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2:
      return kAvx2Kernels;
    case Isa::avx512:
      return kAvx512Kernels;
    case Isa::amx:
      return kAmxKernels;
#elif defined(__aarch64__)
    case Isa::neon:
      return kNeonKernels;
#endif
    default:
      return kScalarKernels;
  }
}

}  // namespace cohort::cpu
