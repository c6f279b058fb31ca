#include "models/packed_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <thread>

#include "base/bytes.h"
#include "base/file_maps.h"
#include "base/result.h"
#include "models/packed_source.h"
#include "quant/half.h"

namespace cohort {
namespace {

using huggingface::QuantMethod;
using safetensors::DType;
using safetensors::TensorInfo;

constexpr int64_t kBlock = 32;

bool exact_half(float value) {
  return f16_to_f32(f32_to_f16(value)) == value;
}

/// What the rows of a matrix need.
struct Needs {
  bool half_scales = true;  // every scale and offset is exact in f16
  bool finite = true;
  float least_zero = std::numeric_limits<float>::max(), most_zero = 0;

  void add(const Needs& other) {
    half_scales &= other.half_scales;
    finite &= other.finite;
    least_zero = std::min(least_zero, other.least_zero);
    most_zero = std::max(most_zero, other.most_zero);
  }
};

/// The smallest type that holds every value of a matrix as its integers and scales.
TensorType choose_type(const Needs& needs, int bits, bool has_offset) {
  if (!needs.half_scales) return TensorType::affine8;
  if (has_offset) {
    if (bits <= 4) return TensorType::q4_1;
    return bits == 5 ? TensorType::q5_1 : TensorType::affine8;
  }
  const float least = -needs.most_zero, most = static_cast<float>((1 << bits) - 1) - needs.least_zero;
  if (least >= -8 && most <= 7) return TensorType::q4_0;
  if (least >= -16 && most <= 15) return TensorType::q5_0;
  if (least >= -128 && most <= 127) return TensorType::q8_0;
  return TensorType::affine8;
}

/// Nibbles of values 0-15 below those of 16-31; for five bits the fifth ones before them.
void put_nibbles(const uint8_t* codes, bool five, std::byte* out) {
  if (five) {
    uint32_t high = 0;
    for (int j = 0; j < kBlock; ++j) high |= static_cast<uint32_t>(codes[j] >> 4) << j;
    store(out, high);
    out += 4;
  }
  for (int j = 0; j < 16; ++j) out[j] = static_cast<std::byte>((codes[j] & 15) | ((codes[j + 16] & 15) << 4));
}

/// Encodes one block of codes with the parameters of its group.
void put_block(TensorType type, int bits, bool has_offset, const uint8_t* codes, float scale, float zero,
               std::byte* out) {
  std::array<uint8_t, kBlock> shifted;
  const auto shift = [&](int bias) {
    for (size_t j = 0; j < kBlock; ++j) shifted[j] = static_cast<uint8_t>(codes[j] - static_cast<int>(zero) + bias);
  };
  switch (type) {
    case TensorType::q4_0:
    case TensorType::q5_0:
      shift(type == TensorType::q4_0 ? 8 : 16);
      store(out, f32_to_f16(scale));
      put_nibbles(shifted.data(), type == TensorType::q5_0, out + 2);
      return;
    case TensorType::q8_0:
      shift(0);
      store(out, f32_to_f16(scale));
      std::memcpy(out + 2, shifted.data(), kBlock);
      return;
    case TensorType::q4_1:
    case TensorType::q5_1:
      store(out, f32_to_f16(scale));
      store(out + 2, f32_to_f16(zero));
      put_nibbles(codes, type == TensorType::q5_1, out + 4);
      return;
    default: {  // affine8
      const int centre = bits == 8 ? 128 : 0;
      const float offset =
          has_offset ? zero + scale * static_cast<float>(centre) : scale * (static_cast<float>(centre) - zero);
      store(out, scale);
      store(out + 4, offset);
      for (size_t j = 0; j < kBlock; ++j) out[8 + j] = static_cast<std::byte>(codes[j] - centre);
    }
  }
}

/// All rows of a source as blocks.
void put_rows(TensorType type, bool has_offset, const PackedSource& source, ThreadTeam& team, std::byte* out) {
  const size_t block_bytes = type_info(type).block_bytes;
  team.run(source.rows, [&](int64_t row, int) {
    const auto count = static_cast<size_t>(source.cols / source.group);
    std::vector<float> scale(count), zero(count);
    std::vector<uint8_t> codes(static_cast<size_t>(source.cols));
    source.groups(row, scale.data(), zero.data());
    source.codes(row, codes.data());
    std::byte* at = out + static_cast<size_t>(row) * row_bytes(type, source.cols);
    for (int64_t first = 0; first < source.cols; first += kBlock, at += block_bytes) {
      const auto g = static_cast<size_t>(first / source.group);
      put_block(type, source.bits, has_offset, codes.data() + first, scale[g], zero[g], at);
    }
  });
}

/// All rows of a source whose groups are scattered over the columns: the values themselves.
void put_values(const PackedSource& source, ThreadTeam& team, std::byte* out) {
  team.run(source.rows, [&](int64_t row, int) {
    const auto cols = static_cast<size_t>(source.cols), count = cols / static_cast<size_t>(source.group);
    std::vector<float> scale(count), zero(count), values(cols);
    std::vector<uint8_t> codes(cols);
    source.groups(row, scale.data(), zero.data());
    source.codes(row, codes.data());
    for (size_t c = 0; c < cols; ++c) {
      const auto g =
          source.group_of.empty() ? c / static_cast<size_t>(source.group) : static_cast<size_t>(source.group_of[c]);
      values[c] = scale[g] * (static_cast<float>(codes[c]) - zero[g]);
    }
    std::memcpy(out + static_cast<size_t>(row) * cols * sizeof(float), values.data(), cols * sizeof(float));
  });
}

/// The file still has what was read.
void release(std::initializer_list<const TensorInfo*> tensors) {
  const FileMaps maps;
  for (const TensorInfo* tensor : tensors) {
    if (tensor != nullptr) maps.release(tensor->data, tensor->bytes);
  }
}

}  // namespace

PackedWeights::PackedWeights(const safetensors::Folder& folder, huggingface::CheckpointQuantisation quantisation)
    : folder_(folder),
      quantisation_(std::move(quantisation)),
      team_(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 64U))) {}

PackedWeights::~PackedWeights() = default;

bool PackedWeights::has(const std::string& module) const {
  switch (quantisation_.method) {
    case QuantMethod::none:
    case QuantMethod::mxfp4:  // has_blocks()
      return false;
    case QuantMethod::mlx:
      return folder_.find(module + ".scales") != nullptr;
    case QuantMethod::gptq:
    case QuantMethod::awq:
      return folder_.find(module + ".qweight") != nullptr;
    case QuantMethod::compressed_tensors:
      return folder_.find(module + ".weight_packed") != nullptr;
    case QuantMethod::fp8:
      break;
  }
  // A matrix of FP8 codes without its scales is one, too: load_fp8() says what is missing.
  const TensorInfo* codes = folder_.find(module + ".weight");
  return folder_.find(module + quantisation_.fp8_scales) != nullptr ||
         (codes != nullptr && codes->dtype == DType::f8_e4m3);
}

bool PackedWeights::has_blocks(const std::string& module) const {
  return quantisation_.method == QuantMethod::mxfp4 && folder_.find(module + "_blocks") != nullptr;
}

Expected<const TensorInfo*> PackedWeights::find(const std::string& name, Used& used) const {
  const TensorInfo* tensor = folder_.find(name);
  if (tensor == nullptr) {
    return fail(ErrorCode::corrupt, "the folder has no tensor '{}', which {} weights need", name,
                huggingface::method_name(quantisation_.method));
  }
  used.insert(tensor);
  return tensor;
}

Expected<std::vector<std::unique_ptr<PackedSource>>> PackedWeights::sources(const std::string& module,
                                                                            const Weight& weight, int64_t experts,
                                                                            Used& used) const {
  const auto rule = quantisation_.rule_of(module);
  if (!rule) {
    return fail(ErrorCode::corrupt, "'{}' has packed weights, but config.json says that it is not quantised", module);
  }
  PackedTensors t;
  switch (quantisation_.method) {
    case QuantMethod::mlx: {
      COHORT_ASSIGN(t.weight, find(module + ".weight", used));
      COHORT_ASSIGN(t.scales, find(module + ".scales", used));
      COHORT_ASSIGN(t.zeros, find(module + ".biases", used));
      break;
    }
    case QuantMethod::compressed_tensors: {
      COHORT_ASSIGN(t.weight, find(module + ".weight_packed", used));
      COHORT_ASSIGN(t.scales, find(module + ".weight_scale", used));
      for (const char* optional : {".weight_zero_point", ".weight_shape", ".weight_g_idx"}) {
        if (const TensorInfo* tensor = folder_.find(module + optional)) used.insert(tensor);
      }
      t.zeros = folder_.find(module + ".weight_zero_point");
      // The other way round is possible: zero points that are all 0 are left out.
      if (t.zeros != nullptr && quantisation_.symmetric) {
        return fail(ErrorCode::corrupt, "config.json says that the weights are symmetric, but '{}' has zero points",
                    module);
      }
      t.order = folder_.find(module + ".weight_g_idx");
      break;
    }
    default: {
      COHORT_ASSIGN(t.weight, find(module + ".qweight", used));
      COHORT_ASSIGN(t.scales, find(module + ".scales", used));
      COHORT_ASSIGN(t.zeros, find(module + ".qzeros", used));
      t.order = folder_.find(module + ".g_idx");
      if (t.order != nullptr) used.insert(t.order);
    }
  }
  std::vector<std::unique_ptr<PackedSource>> sources;
  for (int64_t e = 0; e < experts; ++e) {
    COHORT_ASSIGN(auto source, make_packed_source(quantisation_.method, *rule, quantisation_.zeros_less_one, t, module,
                                                  weight.rows, weight.cols, e, experts));
    sources.push_back(std::move(source));
  }
  return sources;
}

Expected<void> PackedWeights::load(const std::vector<std::string>& modules, bool stacked, Weight& weight, Used& used) {
  if (quantisation_.method == QuantMethod::fp8) {
    for (const std::string& module : modules) COHORT_TRY(load_fp8(module, weight, used));
    return {};
  }
  const auto rule = quantisation_.rule_of(modules.front());
  if (rule && rule->mxfp4) {
    for (const std::string& module : modules)
      COHORT_TRY(load_mxfp4(module, stacked ? weight.experts : 1, weight, used));
    return {};
  }
  std::vector<std::unique_ptr<PackedSource>> all;
  for (const std::string& module : modules) {
    COHORT_ASSIGN(auto some, sources(module, weight, stacked ? weight.experts : 1, used));
    std::ranges::move(some, std::back_inserter(all));
  }
  return repack(std::move(all), weight);
}

Expected<void> PackedWeights::add_slices(Weight& weight, int64_t count, MadeSlices::Make make) {
  COHORT_ASSIGN(auto made, MadeSlices::create(count, weight.slice_bytes(), std::move(make)));
  for (int64_t i = 0; i < count; ++i) weight.slices.push_back(made->slice(i));
  weight.made.push_back(std::move(made));
  return {};
}

Expected<void> PackedWeights::repack(std::vector<std::unique_ptr<PackedSource>> sources, Weight& weight) {
  // First what all experts need together, then their blocks: a weight has one type.
  std::vector<Needs> needs(static_cast<size_t>(team_.size()));
  int bits = 0;
  for (const auto& source : sources) {
    bits = std::max(bits, source->bits);
    if (source->bits != sources.front()->bits || source->group != sources.front()->group) {
      return fail(ErrorCode::unsupported,
                  "'{}' has {} bits in groups of {}, '{}' has {} in groups of {}; the experts of "
                  "a layer must be alike",
                  sources.front()->name, sources.front()->bits, sources.front()->group, source->name, source->bits,
                  source->group);
    }
    team_.run(source->rows, [&](int64_t row, int thread) {
      const auto count = static_cast<size_t>(source->cols / source->group);
      std::vector<float> scale(count), zero(count);
      source->groups(row, scale.data(), zero.data());
      Needs& mine = needs[static_cast<size_t>(thread)];
      for (size_t g = 0; g < count; ++g) {
        mine.finite &= std::isfinite(scale[g]) && std::isfinite(zero[g]);
        mine.half_scales &= exact_half(scale[g]) && (!source->has_offset() || exact_half(zero[g]));
        mine.least_zero = std::min(mine.least_zero, zero[g]);
        mine.most_zero = std::max(mine.most_zero, zero[g]);
      }
    });
    for (const Needs& some : needs) {
      if (!some.finite)
        return fail(ErrorCode::corrupt, "'{}' has a scale that is not finite: the checkpoint is damaged", source->name);
    }
  }
  for (const Needs& some : needs) needs.front().add(some);
  const bool has_offset = sources.front()->has_offset();
  const bool scattered = std::ranges::any_of(sources, [](const auto& source) { return !source->group_of.empty(); });
  weight.type = scattered ? TensorType::f32 : choose_type(needs.front(), bits, has_offset);
  const auto count = static_cast<int64_t>(sources.size());
  return add_slices(weight, count,
                    [this, type = weight.type, has_offset,
                     shared = std::make_shared<const std::vector<std::unique_ptr<PackedSource>>>(std::move(sources))](
                        std::byte* first, size_t stride) {
                      for (const auto& source : *shared) {
                        if (type == TensorType::f32) {
                          put_values(*source, team_, first);
                        } else {
                          put_rows(type, has_offset, *source, team_, first);
                        }
                        first += stride;
                      }
                      for (const auto& source : *shared)
                        release({source->tensors.weight, source->tensors.scales, source->tensors.zeros});
                    });
}

/// MLX's mxfp4: u32 words [.., rows, cols / 8] of nibbles in order, u8 scales [.., rows, cols / 32]. GGUF's blocks hold
/// the scale, then values j and j + 16 in one byte.
Expected<void> PackedWeights::load_mxfp4(const std::string& module, int64_t experts, Weight& weight, Used& used) {
  COHORT_ASSIGN(const TensorInfo* codes, find(module + ".weight", used));
  COHORT_ASSIGN(const TensorInfo* scales, find(module + ".scales", used));
  std::vector<int64_t> words{weight.rows, weight.cols / 8}, groups{weight.rows, weight.cols / kBlock};
  if (experts > 1 || codes->shape.size() == 3) {
    words.insert(words.begin(), experts);
    groups.insert(groups.begin(), experts);
  }
  if (weight.cols % kBlock != 0 || codes->shape != words || scales->shape != groups || codes->dtype != DType::u32 ||
      scales->dtype != DType::u8) {
    return fail(ErrorCode::corrupt,
                "'{}' has {} words {} and {} scales {}; mxfp4 (config.json) asks for U32 {} and U8 {}", module,
                safetensors::dtype_name(codes->dtype), fmt::format("[{}]", fmt::join(codes->shape, ", ")),
                safetensors::dtype_name(scales->dtype), fmt::format("[{}]", fmt::join(scales->shape, ", ")),
                fmt::format("[{}]", fmt::join(words, ", ")), fmt::format("[{}]", fmt::join(groups, ", ")));
  }
  return add_mxfp4(*codes, *scales, experts, {}, weight);
}

/// u8 blocks of 16 bytes: the same nibbles in the same order.
Expected<void> PackedWeights::load_blocks(const std::string& module, StoredRows rows, Weight& weight, Used& used) {
  COHORT_ASSIGN(const TensorInfo* codes, find(module + "_blocks", used));
  COHORT_ASSIGN(const TensorInfo* scales, find(module + "_scales", used));
  const int64_t stored = weight.rows * rows.step, blocks = weight.cols / kBlock;
  const std::vector<int64_t> shape{weight.experts, stored, blocks, kBlock / 2}, groups{weight.experts, stored, blocks};
  if (weight.cols % kBlock != 0 || codes->shape != shape || scales->shape != groups || codes->dtype != DType::u8 ||
      scales->dtype != DType::u8) {
    return fail(ErrorCode::corrupt,
                "'{}' has {} blocks [{}] and {} scales [{}]; config.json (mxfp4) asks for U8 [{}] and U8 [{}]", module,
                safetensors::dtype_name(codes->dtype), fmt::join(codes->shape, ", "),
                safetensors::dtype_name(scales->dtype), fmt::join(scales->shape, ", "), fmt::join(shape, ", "),
                fmt::join(groups, ", "));
  }
  return add_mxfp4(*codes, *scales, weight.experts, rows, weight);
}

Expected<void> PackedWeights::add_mxfp4(const Tensor& codes, const Tensor& scales, int64_t experts, StoredRows rows,
                                        Weight& weight) {
  weight.type = TensorType::mxfp4;
  const int64_t blocks = weight.cols / kBlock;
  return add_slices(weight, experts, [=, this, &codes, &scales, count = weight.rows](std::byte* first, size_t stride) {
    for (int64_t e = 0; e < experts; ++e, first += stride) {
      team_.run(count, [&](int64_t row, int) {
        const int64_t source = ((e * count + row) * rows.step + rows.first) * blocks;
        std::byte* at = first + row * blocks * 17;
        for (int64_t b = 0; b < blocks; ++b, at += 17) {
          std::array<uint8_t, kBlock> nibbles;
          for (size_t j = 0; j < kBlock; ++j) {
            const auto pair = std::to_integer<uint8_t>(codes.data[(source + b) * 16 + static_cast<int64_t>(j / 2)]);
            nibbles[j] = j % 2 == 0 ? pair & 15 : pair >> 4;
          }
          at[0] = scales.data[source + b];
          put_nibbles(nibbles.data(), false, at + 1);
        }
      });
    }
    release({&codes, &scales});
  });
}

Expected<void> PackedWeights::turn(const Tensor& tensor, StoredRows rows, Weight& weight) {
  const size_t bytes = row_bytes(weight.type, 1);
  return add_slices(weight, weight.experts,
                    [=, this, &tensor, experts = weight.experts, count = weight.rows, cols = weight.cols](
                        std::byte* out, size_t stride) {
                      // So many outputs of one input lie in a cache line or two, and their rows are written together.
                      constexpr int64_t kTogether = 32;
                      const int64_t pieces = (count + kTogether - 1) / kTogether;
                      team_.run(experts * pieces, [&](int64_t job, int) {
                        const int64_t e = job / pieces, begin = job % pieces * kTogether,
                                      end = std::min(begin + kTogether, count);
                        const std::byte* from = tensor.data + static_cast<size_t>(e * cols * count * rows.step) * bytes;
                        std::byte* to = out + static_cast<size_t>(e) * stride;
                        for (int64_t c = 0; c < cols; ++c) {
                          for (int64_t r = begin; r < end; ++r) {
                            const int64_t at = (c * count + r) * rows.step + rows.first;
                            std::memcpy(to + static_cast<size_t>(r * cols + c) * bytes,
                                        from + static_cast<size_t>(at) * bytes, bytes);
                          }
                        }
                      });
                      release({&tensor});
                    });
}

/// F8_E4M3 [rows, cols] and weight_scale_inv or weight_scale [ceil(rows / block), ceil(cols / block)].
Expected<void> PackedWeights::load_fp8(const std::string& module, Weight& weight, Used& used) {
  COHORT_ASSIGN(const TensorInfo* codes, find(module + ".weight", used));
  COHORT_ASSIGN(const TensorInfo* scales, find(module + quantisation_.fp8_scales, used));
  const int64_t block_rows = quantisation_.scale_rows, block_cols = quantisation_.scale_cols;
  const std::vector<int64_t> shape{weight.rows, weight.cols};
  const int64_t lines = (weight.rows + block_rows - 1) / block_rows,
                across = (weight.cols + block_cols - 1) / block_cols;
  const bool floats = scales->dtype == DType::f32 || scales->dtype == DType::f16 || scales->dtype == DType::bf16;
  if (codes->shape != shape || codes->dtype != DType::f8_e4m3 || scales->shape != std::vector<int64_t>{lines, across} ||
      !floats) {
    return fail(
        ErrorCode::corrupt,
        "'{}' has {} weights [{}] and {} scales [{}]; config.json asks for F8_E4M3 [{}] and one scale in F32, F16 "
        "or BF16 for each {} x {} values, which makes [{}, {}]: correct the block size there or convert the "
        "model again",
        module, safetensors::dtype_name(codes->dtype), fmt::join(codes->shape, ", "),
        safetensors::dtype_name(scales->dtype), fmt::join(scales->shape, ", "), fmt::join(shape, ", "), block_rows,
        std::min(block_cols, weight.cols), lines, across);
  }
  if (weight.cols % kBlock != 0) {
    return fail(ErrorCode::unsupported,
                "'{}' has rows of {} FP8 values; multiples of {} can be run (use the BF16 checkpoint of this model)",
                module, weight.cols, kBlock);
  }
  for (int64_t i = 0; i < lines * across; ++i) {
    if (const float scale = load_float(*scales, i); !std::isfinite(scale)) {
      return fail(ErrorCode::corrupt, "'{}{}' holds {} at [{}, {}]; scales are finite: the checkpoint is damaged",
                  module, quantisation_.fp8_scales, scale, i / across, i % across);
    }
  }
  weight.type = TensorType::fp8_e4m3;
  return add_slices(weight, 1, [=, this, rows = weight.rows, cols = weight.cols](std::byte* first, size_t) {
    const size_t block_bytes = type_info(TensorType::fp8_e4m3).block_bytes;
    team_.run(rows, [&](int64_t row, int) {
      std::byte* at = first + static_cast<size_t>(row) * row_bytes(TensorType::fp8_e4m3, cols);
      for (int64_t k = 0; k < cols; k += kBlock, at += block_bytes) {
        store(at, load_float(*scales, row / block_rows * across + k / block_cols));
        std::memcpy(at + 4, codes->data + row * cols + k, kBlock);
      }
    });
    release({codes, scales});
  });
}

}  // namespace cohort
