#include "models/packed_source.h"

#include <array>
#include <cstring>
#include <vector>

#include "base/result.h"
#include "quant/half.h"

namespace cohort {
namespace {

using huggingface::QuantMethod;
using huggingface::QuantRule;
using safetensors::DType;
using safetensors::TensorInfo;
using Shape = std::vector<int64_t>;

uint32_t load_word(const std::byte* data, int64_t index) {
  uint32_t word = 0;
  std::memcpy(&word, data + index * 4, sizeof word);
  return word;
}

/// Value `index` of a little-endian stream of `bits`-bit numbers.
uint32_t bits_at(const std::byte* stream, int64_t index, int bits) {
  const int64_t at = index * bits;
  const auto first = std::to_integer<uint32_t>(stream[at / 8]);
  const int shift = static_cast<int>(at % 8);
  uint32_t value = first >> shift;
  if (shift + bits > 8) value |= std::to_integer<uint32_t>(stream[at / 8 + 1]) << (8 - shift);
  return value & ((1U << bits) - 1);
}

void unpack_stream(const std::byte* stream, int64_t count, int bits, uint8_t* out) {
  if (bits == 4) {
    for (int64_t i = 0; i < count / 2; ++i) {
      const auto pair = std::to_integer<uint8_t>(stream[i]);
      out[2 * i] = pair & 15;
      out[2 * i + 1] = pair >> 4;
    }
    return;
  }
  if (bits == 8) {
    std::memcpy(out, stream, static_cast<size_t>(count));
    return;
  }
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<uint8_t>(bits_at(stream, i, bits));
}

/// MLX: u32 words [.., rows, cols * bits / 32] that are one stream a row; scales and biases [.., rows, groups].
class MlxSource final : public PackedSource {
 public:
  MlxSource(const PackedTensors& packed, int64_t expert) : PackedSource(packed), expert_(expert) {}
  bool has_offset() const override { return true; }
  void codes(int64_t row, uint8_t* out) const override {
    const int64_t stride = cols * bits / 8;
    unpack_stream(tensors.weight->data + (expert_ * rows + row) * stride, cols, bits, out);
  }
  void groups(int64_t row, float* scale, float* zero) const override {
    const int64_t count = cols / group, first = (expert_ * rows + row) * count;
    for (int64_t g = 0; g < count; ++g) {
      scale[g] = load_float(*tensors.scales, first + g);
      zero[g] = load_float(*tensors.zeros, first + g);
    }
  }

 private:
  int64_t expert_;
};

/// compressed-tensors: i32 words [rows, cols * bits / 32], a stream a row; scales [rows, groups]; zero points, if any,
/// packed along the rows: [rows * bits / 32, groups]. Codes and zero points are stored plus 2^(bits-1).
class CompressedSource final : public PackedSource {
 public:
  using PackedSource::PackedSource;
  bool has_offset() const override { return false; }
  void codes(int64_t row, uint8_t* out) const override {
    unpack_stream(tensors.weight->data + row * (cols * bits / 8), cols, bits, out);
  }
  void groups(int64_t row, float* scale, float* zero) const override {
    const int64_t count = cols / group, per_word = 32 / bits;
    for (int64_t g = 0; g < count; ++g) {
      scale[g] = load_float(*tensors.scales, row * count + g);
      zero[g] = static_cast<float>(1 << (bits - 1));
      if (tensors.zeros == nullptr) continue;
      const uint32_t word = load_word(tensors.zeros->data, row / per_word * count + g);
      zero[g] = static_cast<float>((word >> (bits * static_cast<int>(row % per_word))) & ((1U << bits) - 1));
    }
  }
};

/// GPTQ: i32 words [cols * bits / 32, rows], a stream down each column of words; zero points [groups, rows * bits /
/// 32], a stream along each line; scales [groups, rows].
class GptqSource final : public PackedSource {
 public:
  GptqSource(const PackedTensors& packed, bool zeros_less_one)
      : PackedSource(packed), zeros_less_one_(zeros_less_one) {}
  bool has_offset() const override { return false; }
  void codes(int64_t row, uint8_t* out) const override {
    // A group of `bits` words holds 32 values.
    std::array<uint32_t, 8> words;
    for (int64_t first = 0; first < cols; first += 32) {
      for (int w = 0; w < bits; ++w) {
        words[static_cast<size_t>(w)] = load_word(tensors.weight->data, (first / 32 * bits + w) * rows + row);
      }
      unpack_stream(reinterpret_cast<const std::byte*>(words.data()), 32, bits, out + first);
    }
  }
  void groups(int64_t row, float* scale, float* zero) const override {
    const int64_t count = cols / group;
    for (int64_t g = 0; g < count; ++g) {
      scale[g] = load_float(*tensors.scales, g * rows + row);
      const std::byte* line = tensors.zeros->data + g * (rows * bits / 8);
      zero[g] = static_cast<float>(bits_at(line, row, bits) + (zeros_less_one_ ? 1 : 0));
    }
  }

 private:
  bool zeros_less_one_;
};

/// AWQ: i32 words [cols, rows / 8]; nibble i of a word belongs to row kOrder[i] of its eight; zero points
/// [groups, rows / 8] alike; scales [groups, rows].
class AwqSource final : public PackedSource {
 public:
  using PackedSource::PackedSource;
  bool has_offset() const override { return false; }
  void codes(int64_t row, uint8_t* out) const override {
    for (int64_t c = 0; c < cols; ++c) out[c] = nibble(*tensors.weight, c, row);
  }
  void groups(int64_t row, float* scale, float* zero) const override {
    for (int64_t g = 0; g < cols / group; ++g) {
      scale[g] = load_float(*tensors.scales, g * rows + row);
      zero[g] = static_cast<float>(nibble(*tensors.zeros, g, row));
    }
  }

 private:
  uint8_t nibble(const TensorInfo& tensor, int64_t line, int64_t row) const {
    constexpr std::array<int, 8> kPlace = {0, 4, 1, 5, 2, 6, 3, 7};  // where each of the eight rows is
    const uint32_t word = load_word(tensor.data, line * (rows / 8) + row / 8);
    return static_cast<uint8_t>((word >> (4 * kPlace[static_cast<size_t>(row % 8)])) & 15);
  }
};

std::string shape_words(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Expected<void> expect(const TensorInfo& tensor, const Shape& shape, std::initializer_list<DType> types,
                      const std::string& why) {
  if (tensor.shape != shape) {
    return fail(ErrorCode::corrupt, "tensor '{}' has shape {}; {} asks for {}", tensor.name, shape_words(tensor.shape),
                why, shape_words(shape));
  }
  for (const DType type : types) {
    if (tensor.dtype == type) return {};
  }
  return fail(ErrorCode::corrupt, "tensor '{}' has type {}, which {} cannot have", tensor.name,
              safetensors::dtype_name(tensor.dtype), why);
}

/// The group of each column, or nothing where groups lie side by side. compressed-tensors leaves -1 where it does not
/// order.
Expected<std::vector<int32_t>> read_order(const TensorInfo& order, int64_t cols, int64_t group, bool may_be_unset) {
  COHORT_TRY(expect(order, {cols}, {DType::i32}, "a group for every column"));
  std::vector<int32_t> groups(static_cast<size_t>(cols));
  bool scattered = false;
  for (int64_t c = 0; c < cols; ++c) {
    const auto g = static_cast<int32_t>(load_word(order.data, c));
    if (g == -1 && may_be_unset) return std::vector<int32_t>{};
    if (g < 0 || g >= cols / group) {
      return fail(ErrorCode::corrupt, "tensor '{}' puts column {} into group {}; there are groups 0 to {}", order.name,
                  c, g, cols / group - 1);
    }
    scattered |= g != c / group;
    groups[static_cast<size_t>(c)] = g;
  }
  if (!scattered) groups.clear();
  return groups;
}

}  // namespace

float load_float(const TensorInfo& tensor, int64_t index) {
  if (tensor.dtype == DType::f32) {
    float value = 0;
    std::memcpy(&value, tensor.data + index * 4, sizeof value);
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, tensor.data + index * 2, sizeof half);
  return tensor.dtype == DType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
}

Expected<std::unique_ptr<PackedSource>> make_packed_source(QuantMethod method, const QuantRule& rule,
                                                           bool zeros_less_one, const PackedTensors& tensors,
                                                           const std::string& module, int64_t rows, int64_t cols,
                                                           int64_t expert, int64_t experts) {
  const int64_t group = rule.group > 0 ? rule.group : cols;
  if (cols % group != 0 || cols % 32 != 0) {
    return fail(ErrorCode::corrupt, "'{}': rows of {} values are no whole number of groups of {} (config.json)", module,
                cols, group);
  }
  const int64_t words = cols * rule.bits / 32, groups = cols / group;
  const std::string why =
      fmt::format("{} with {} bits in groups of {} (config.json)", huggingface::method_name(method), rule.bits, group);
  const auto floats = {DType::f16, DType::bf16, DType::f32};
  std::unique_ptr<PackedSource> source;
  const auto stacked = [&](int64_t last) {
    return experts > 1 || tensors.weight->shape.size() == 3 ? Shape{experts, rows, last} : Shape{rows, last};
  };
  switch (method) {
    case QuantMethod::mlx:
      COHORT_TRY(expect(*tensors.weight, stacked(words), {DType::u32}, why));
      COHORT_TRY(expect(*tensors.scales, stacked(groups), floats, why));
      COHORT_TRY(expect(*tensors.zeros, stacked(groups), floats, why));
      source = std::make_unique<MlxSource>(tensors, expert);
      break;
    case QuantMethod::compressed_tensors:
      COHORT_TRY(expect(*tensors.weight, {rows, words}, {DType::i32}, why));
      COHORT_TRY(expect(*tensors.scales, {rows, groups}, floats, why));
      if (tensors.zeros != nullptr) {
        const int64_t per_word = 32 / rule.bits;
        COHORT_TRY(expect(*tensors.zeros, {(rows + per_word - 1) / per_word, groups}, {DType::i32}, why));
      }
      source = std::make_unique<CompressedSource>(tensors);
      break;
    case QuantMethod::gptq:
      if (rows * rule.bits % 32 != 0) {
        return fail(ErrorCode::corrupt, "'{}': {} rows of {} bits do not fill whole words of zero points", module, rows,
                    rule.bits);
      }
      COHORT_TRY(expect(*tensors.weight, {words, rows}, {DType::i32}, why));
      COHORT_TRY(expect(*tensors.scales, {groups, rows}, floats, why));
      COHORT_TRY(expect(*tensors.zeros, {groups, rows * rule.bits / 32}, {DType::i32}, why));
      source = std::make_unique<GptqSource>(tensors, zeros_less_one);
      break;
    case QuantMethod::awq:
      if (rows % 8 != 0)
        return fail(ErrorCode::corrupt, "'{}': {} rows do not fill whole words of eight", module, rows);
      COHORT_TRY(expect(*tensors.weight, {cols, rows / 8}, {DType::i32}, why));
      COHORT_TRY(expect(*tensors.scales, {groups, rows}, floats, why));
      COHORT_TRY(expect(*tensors.zeros, {groups, rows / 8}, {DType::i32}, why));
      source = std::make_unique<AwqSource>(tensors);
      break;
    default:
      return fail(ErrorCode::internal, "'{}': {} has no packed integers", module, huggingface::method_name(method));
  }
  if (tensors.order != nullptr) {
    COHORT_ASSIGN(source->group_of, read_order(*tensors.order, cols, group, method == QuantMethod::compressed_tensors));
  }
  source->rows = rows;
  source->cols = cols;
  source->group = group;
  source->bits = rule.bits;
  source->name = module;
  return source;
}

}  // namespace cohort
