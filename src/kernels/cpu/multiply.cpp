#include "kernels/cpu/multiply.h"

#include <algorithm>
#include <vector>

namespace cohort::cpu {

void multiply_decoded(const LinearKernels& kernels, const Matrix& matrix, int64_t expert, int64_t tile,
                      const RowChunk& x, float* out, int64_t stride) {
  const Weight& w = *matrix.source;
  const int32_t outputs = outputs_of_tile(matrix, tile);
  const auto cols = static_cast<size_t>(w.cols);
  // Memory of this thread, kept between calls. A few outputs at a time stay in the first cache.
  constexpr int32_t kOutputs = 4;
  static thread_local std::vector<float> decoded;
  decoded.resize(size_t{kOutputs} * cols);
  const std::byte* first = w.slices[static_cast<size_t>(expert)] +
                           static_cast<size_t>(tile) * static_cast<size_t>(matrix.tile_outputs) * matrix.row_stride;
  for (int32_t output = 0; output < outputs; output += kOutputs) {
    const int32_t count = std::min(kOutputs, outputs - output);
    for (int32_t o = 0; o < count; ++o) {
      kernels.decode_fp8(first + static_cast<size_t>(output + o) * matrix.row_stride, w.cols / kBlockValues,
                         decoded.data() + static_cast<size_t>(o) * cols);
    }
    float* rows[kChunkRows];
    for (int32_t r = 0; r < x.rows; ++r) rows[r] = out + r * stride + output;
    kernels.float_rows({reinterpret_cast<const std::byte*>(decoded.data()), cols * sizeof(float), TensorType::f32,
                        x.floats, rows, w.cols, x.rows, count});
  }
}

}  // namespace cohort::cpu
