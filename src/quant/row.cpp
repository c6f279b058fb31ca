// Dispatch of rows and 32-blocks to the family that knows the type.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/result.h"
#include "quant/codec.h"

namespace cohort {
namespace quant {
namespace {

const Codec& codec_of(TensorType type) {
  for (const auto lookup : {legacy_codec, k_codec, iq_codec, ternary_codec, fp4_codec, checkpoint_codec}) {
    if (const Codec* codec = lookup(type)) {
      return *codec;
    }
  }
  bug("a type that is not quantised has no integer view");
}

BlockEncoder find_encoder(TensorType type) {
  for (const auto lookup : {legacy_encoder, k_encoder, iq_encoder, iq4_encoder, ternary_encoder, fp4_encoder}) {
    if (BlockEncoder encoder = lookup(type)) {
      return encoder;
    }
  }
  return nullptr;
}

bool is_float(TensorType type) {
  return type == TensorType::f32 || type == TensorType::f16 || type == TensorType::bf16;
}

/// Refuses the first value that the type cannot hold.
Expected<void> check_values(const TypeInfo& info, const float* x, int64_t values) {
  if (info.type == TensorType::f32 || info.type == TensorType::bf16) {
    return {};
  }
  constexpr float largest_half = 65504;
  constexpr float overflow = 65520;  // rounds to infinity
  if (info.type == TensorType::f16) {
    for (int64_t i = 0; i < values; ++i) {
      if (std::fabs(x[i]) >= overflow && std::isfinite(x[i])) {
        return fail(ErrorCode::invalid_argument,
                    "value {} at position {} of the row is beyond f16 (at most {}); use bf16 or f32", x[i], i,
                    largest_half);
      }
    }
    return {};
  }
  for (int64_t i = 0; i < values; ++i) {
    if (!(std::fabs(x[i]) <= largest_half)) {
      return fail(ErrorCode::invalid_argument,
                  "value {} at position {} of the row cannot be encoded as {} (finite values up to {}); keep this "
                  "tensor as f32",
                  x[i], i, info.name, largest_half);
    }
  }
  return {};
}

Expected<void> check_importance(const float* importance, int64_t values) {
  for (int64_t i = 0; importance != nullptr && i < values; ++i) {
    if (!(importance[i] >= 0 && std::isfinite(importance[i]))) {
      return fail(
          ErrorCode::invalid_argument,
          "importance {} at position {} of the row is not a finite number >= 0; collect the importance matrix again",
          importance[i], i);
    }
  }
  return {};
}

void expand_integers(const CodeBlock& block, bool two_scales, IntBlock& out) {
  out.scale = block.d[0];
  out.scale2 = block.d[1];
  out.groups = two_scales ? 2 : 1;
  out.offset_scale = block.d_offset;
  out.has_offset = block.has_offset;
  for (int j = 0; j < 32; ++j) {
    out.coeff[j] = static_cast<int32_t>(block.scale[j / 16]) * block.code[j];
    out.offset[j] = block.has_offset ? block.offset[j / 16] : 0;
  }
}

}  // namespace

void bug(const char* what) {
  std::fprintf(stderr, "internal error in cohort/quant: %s\n", what);
  std::abort();
}

}  // namespace quant

void decode_row(TensorType type, const std::byte* source, float* out, int64_t values) {
  const TypeInfo& info = type_info(type);
  quant::require(info.weight && values >= 0 && values % info.block_values == 0,
                 "decode_row of whole blocks of a weight type");
  const auto* bytes = reinterpret_cast<const uint8_t*>(source);
  switch (type) {
    case TensorType::f32:
      std::memcpy(out, bytes, static_cast<size_t>(values) * sizeof(float));
      return;
    case TensorType::f16:
      for (int64_t i = 0; i < values; ++i) {
        out[i] = quant::load_f16(bytes + 2 * i);
      }
      return;
    case TensorType::bf16:
      for (int64_t i = 0; i < values; ++i) {
        out[i] = bf16_to_f32(quant::load_u16(bytes + 2 * i));
      }
      return;
    default:
      quant::codec_of(type).decode(bytes, out, values / info.block_values);
  }
}

bool has_encoder(TensorType type) {
  return quant::is_float(type) || quant::find_encoder(type) != nullptr;
}

Expected<void> encode_row(TensorType type, const float* source, std::byte* out, int64_t values,
                          const float* importance) {
  const TypeInfo& info = type_info(type);
  if (values < 0 || values % info.block_values != 0) {
    return fail(ErrorCode::invalid_argument,
                "a row of {} values cannot be {}, which stores blocks of {}; choose a type with smaller blocks", values,
                info.name, info.block_values);
  }
  const quant::BlockEncoder encoder = quant::find_encoder(type);
  if (!quant::is_float(type) && encoder == nullptr) {
    return fail(ErrorCode::unsupported, "there is no encoder for the type {}", info.name);
  }
  COHORT_TRY(quant::check_values(info, source, values));
  COHORT_TRY(quant::check_importance(importance, values));
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  switch (type) {
    case TensorType::f32:
      std::memcpy(bytes, source, static_cast<size_t>(values) * sizeof(float));
      break;
    case TensorType::f16:
      for (int64_t i = 0; i < values; ++i) {
        quant::store_u16(bytes + 2 * i, f32_to_f16(source[i]));
      }
      break;
    case TensorType::bf16:
      for (int64_t i = 0; i < values; ++i) {
        quant::store_u16(bytes + 2 * i, f32_to_bf16(source[i]));
      }
      break;
    default:
      for (int64_t i = 0; i < values; i += info.block_values, bytes += info.block_bytes) {
        encoder(source + i, importance == nullptr ? nullptr : importance + i, bytes);
      }
  }
  return {};
}

void decode_code_block(TensorType type, const std::byte* row, int64_t index, CodeBlock& out) {
  const TypeInfo& info = type_info(type);
  const int64_t parts = info.block_values / 32;
  const auto* block = reinterpret_cast<const uint8_t*>(row) + index / parts * info.block_bytes;
  quant::codec_of(type).unpack(block, static_cast<int>(index % parts), out);
}

void decode_int_block(TensorType type, const std::byte* row, int64_t index, IntBlock& out) {
  CodeBlock block;
  decode_code_block(type, row, index, block);
  quant::expand_integers(block, type == TensorType::nvfp4, out);
}

}  // namespace cohort
