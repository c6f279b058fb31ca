#include "measure/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/result.h"
#include "base/thread_team.h"
#include "formats/gguf/gguf.h"
#include "measure/synth_blocks.h"

namespace cohort {
namespace {

// llama.cpp's file types (general.file_type) with the type that most tensors get.
struct FileType {
  std::string_view name;
  TensorType base;
  uint32_t id;
  bool mixed;  // more bits for V and down of some layers
};
constexpr std::array kFileTypes = {
    FileType{"f32", TensorType::f32, 0, false},      FileType{"f16", TensorType::f16, 1, false},
    FileType{"bf16", TensorType::bf16, 32, false},   FileType{"q4_0", TensorType::q4_0, 2, false},
    FileType{"q4_1", TensorType::q4_1, 3, false},    FileType{"q5_0", TensorType::q5_0, 8, false},
    FileType{"q5_1", TensorType::q5_1, 9, false},    FileType{"q8_0", TensorType::q8_0, 7, false},
    FileType{"q4_k_s", TensorType::q4_k, 14, false}, FileType{"q4_k_m", TensorType::q4_k, 15, true},
    FileType{"q5_k_s", TensorType::q5_k, 16, false}, FileType{"q5_k_m", TensorType::q5_k, 17, true},
    FileType{"q6_k", TensorType::q6_k, 18, false},   FileType{"mxfp4_moe", TensorType::mxfp4, 38, false},
};

const FileType* find_file_type(std::string_view name) {
  const auto found = std::ranges::find(kFileTypes, name, &FileType::name);
  return found == kFileTypes.end() ? nullptr : &*found;
}

// The layers whose V and down get Q6_K in the mixed types: the first and last eighth and every third between.
bool more_bits(int32_t layer, int32_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

// The type that a quantiser falls back to when rows are no multiple of 256.
TensorType fitting(TensorType type, int64_t columns) {
  if (columns % type_info(type).block_values == 0) return type;
  const TensorType smaller = type == TensorType::q4_k   ? TensorType::q5_0
                             : type == TensorType::q5_k ? TensorType::q5_1
                             : type == TensorType::q6_k ? TensorType::q8_0
                                                        : TensorType::f16;
  return columns % type_info(smaller).block_values == 0 ? smaller : TensorType::f16;
}

TensorType type_of(const SynthModel& model, const SynthTensor& tensor, const FileType& file) {
  const bool quantised = type_info(file.base).quantised;
  TensorType type = file.base;
  // llama.cpp's MXFP4 mix: experts only, all else Q8_0.
  const bool experts = tensor.shape.size() == 3;
  if (type == TensorType::mxfp4 && !experts) type = TensorType::q8_0;
  switch (tensor.role) {
    case TensorRole::vector:
    case TensorRole::router:
      return TensorType::f32;
    case TensorRole::head:
      if (quantised && type != TensorType::q8_0) type = TensorType::q6_k;
      break;
    case TensorRole::embedding:
      if (model.tied && quantised && type != TensorType::q8_0) type = TensorType::q6_k;
      break;
    case TensorRole::attention_v:
    case TensorRole::feed_forward_down:
      if (file.mixed && tensor.layer >= 0 && more_bits(tensor.layer, model.layers)) type = TensorType::q6_k;
      break;
    case TensorRole::attention:
    case TensorRole::feed_forward:
      break;
  }
  return fitting(type, tensor.shape[0]);
}

// Spread of the values: matrices keep the size of what they multiply; routers spread their logits so that experts
// differ clearly; an embedding that is no head starts the residual stream at size 1.
float deviation(const SynthModel& model, const SynthTensor& tensor) {
  const float fan_in = 1.0F / std::sqrt(static_cast<float>(tensor.shape[0]));
  if (tensor.role == TensorRole::router) return 2.0F * fan_in;
  return tensor.role == TensorRole::embedding && !model.tied ? 1.0F : fan_in;
}

uint64_t seed_of(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return random_word(seed, hash);
}

Expected<void> write_vector(gguf::Writer& writer, const SynthTensor& tensor, uint64_t seed) {
  std::vector<float> values = tensor.values;
  if (values.empty()) {
    int64_t count = 1;
    for (int64_t dimension : tensor.shape) count *= dimension;
    values.resize(static_cast<size_t>(count), tensor.constant);
    for (size_t i = 0; i < values.size() && tensor.constant == 0; ++i) {
      values[i] = 0.9F + 0.2F * static_cast<float>(random_word(seed, i) >> 40) * 0x1p-24F;
    }
  }
  return writer.write(std::as_bytes(std::span(values)));
}

}  // namespace

std::vector<std::string_view> synth_type_names() {
  std::vector<std::string_view> names;
  names.reserve(std::size(kFileTypes));
  for (const FileType& type : kFileTypes) names.push_back(type.name);
  return names;
}

Expected<std::vector<TensorType>> synth_types(const SynthModel& model, std::string_view type) {
  const FileType* file = find_file_type(type);
  if (file == nullptr) {
    return fail(ErrorCode::invalid_argument, "no synthetic weights of type '{}'; known are {}", type,
                fmt::join(synth_type_names(), ", "));
  }
  std::vector<TensorType> types;
  for (const SynthTensor& tensor : model.tensors) types.push_back(type_of(model, tensor, *file));
  return types;
}

Expected<uint64_t> synthesise(const SynthOptions& options) {
  COHORT_ASSIGN(const SynthModel model, synth_model(options.config, options.layers));
  COHORT_ASSIGN(const std::vector<TensorType> types, synth_types(model, options.type));
  if (options.threads < 1 || options.threads > 4096) {
    return fail(ErrorCode::invalid_argument, "{} threads: expected 1 to 4096", options.threads);
  }
  COHORT_ASSIGN(auto writer, gguf::Writer::create(options.output));
  for (const auto& [key, value] : model.metadata.entries()) COHORT_TRY(writer.metadata().add(key, value));
  COHORT_TRY(writer.metadata().add("general.file_type", gguf::Value(find_file_type(options.type)->id)));
  COHORT_TRY(writer.metadata().add("general.quantization_version", gguf::Value(uint32_t{2})));
  COHORT_TRY(writer.metadata().add("cohort.synthetic_seed", gguf::Value(options.seed)));
  for (size_t i = 0; i < types.size(); ++i) {
    COHORT_TRY(writer.add_tensor(model.tensors[i].name, types[i], model.tensors[i].shape));
  }
  const uint64_t total = writer.total_bytes();
  COHORT_TRY(writer.begin_data());
  ThreadTeam team(options.threads);
  constexpr int64_t kPiece = int64_t{1} << 20, kPieces = 32;  // bytes a job fills, jobs between two writes
  std::vector<std::byte> buffer(static_cast<size_t>(kPiece * kPieces));
  uint64_t done = 0;
  for (size_t i = 0; i < types.size(); ++i) {
    const SynthTensor& tensor = model.tensors[i];
    const uint64_t seed = seed_of(options.seed, tensor.name);
    if (tensor.role == TensorRole::vector) {
      COHORT_TRY(write_vector(writer, tensor, seed));
      continue;
    }
    const TypeInfo& info = type_info(types[i]);
    const int64_t blocks = static_cast<int64_t>(writer.tensors()[i].bytes / info.block_bytes);
    const int64_t per_piece = kPiece / info.block_bytes;
    const float sigma = deviation(model, tensor);
    for (int64_t first = 0; first < blocks; first += per_piece * kPieces) {
      const int64_t count = std::min(blocks - first, per_piece * kPieces);
      team.run((count + per_piece - 1) / per_piece, [&](int64_t piece, int) {
        const int64_t from = piece * per_piece;
        fill_random_blocks(types[i], seed, first + from, std::min(per_piece, count - from), sigma,
                           buffer.data() + from * info.block_bytes);
      });
      const auto bytes = static_cast<size_t>(count * info.block_bytes);
      COHORT_TRY(writer.write({buffer.data(), bytes}));
      done += bytes;
      if (options.progress) options.progress(done, total);
    }
  }
  COHORT_TRY(writer.commit());
  return total;
}

}  // namespace cohort
