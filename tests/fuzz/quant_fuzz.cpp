// Random bytes to every decoder: the first byte picks the type, the rest is one row. The views must agree, and
// re-encoding finite values must give bytes that decode to finite values.
#include <cmath>
#include <cstdlib>
#include <vector>

#include "quant/types.h"

using namespace cohort;

namespace {

bool same(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

void check(bool condition) {
  if (!condition) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const auto types = all_types();
  const TypeInfo& info = types[data[0] % types.size()];
  const auto blocks = static_cast<int64_t>((size - 1) / info.block_bytes);
  if (!info.weight || blocks == 0) {
    return 0;
  }
  const int64_t values = blocks * info.block_values;
  const std::vector<std::byte> row(reinterpret_cast<const std::byte*>(data + 1),
                                   reinterpret_cast<const std::byte*>(data + 1) + row_bytes(info.type, values));
  std::vector<float> decoded(static_cast<size_t>(values));
  decode_row(info.type, row.data(), decoded.data(), values);
  if (info.quantised) {
    for (int64_t index = 0; index < values / 32; ++index) {
      IntBlock block;
      decode_int_block(info.type, row.data(), index, block);
      for (int j = 0; j < 32; ++j) {
        float value = (j < 16 ? block.scale : block.scale2) * static_cast<float>(block.coeff[j]);
        if (block.has_offset) {
          value += block.offset_scale * static_cast<float>(block.offset[j]);
        }
        check(same(value, decoded[static_cast<size_t>(32 * index + j)]));
      }
    }
  }
  std::vector<std::byte> again(row.size());
  if (has_encoder(info.type) && encode_row(info.type, decoded.data(), again.data(), values)) {
    bool finite = true;
    for (const float value : decoded) {
      finite = finite && std::isfinite(value);
    }
    decode_row(info.type, again.data(), decoded.data(), values);
    for (const float value : decoded) {
      check(!finite || std::isfinite(value));
    }
  }
  return 0;
}
