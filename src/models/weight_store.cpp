#include "models/weight_store.h"

#include <span>
#include <unordered_set>

#include "base/result.h"
#include "formats/gguf/gguf.h"
#include "formats/safetensors/safetensors.h"
#include "models/huggingface_names.h"
#include "models/packed_weights.h"

namespace cohort {

const Weight* WeightStore::matrix(const std::string& name, int64_t rows, int64_t cols, int64_t experts) {
  if (const auto known = matrix_index_.find(name); known != matrix_index_.end()) return known->second;
  auto found = find_matrix(name, rows, cols, experts);
  if (!found) {
    remember(found.error());
    return &matrices_.emplace_back();
  }
  const TypeInfo& type = type_info(found->type);
  if (!type.weight) {
    remember(
        {ErrorCode::unsupported, fmt::format("tensor '{}' has type {}, which cannot be a weight", name, type.name)});
  } else if (cols % type.block_values != 0) {
    remember(
        {ErrorCode::corrupt, fmt::format("tensor '{}': rows of {} values are no whole number of {}-value {} blocks",
                                         name, cols, type.block_values, type.name)});
  }
  return matrix_index_[name] = &matrices_.emplace_back(std::move(*found));
}

const VectorWeight* WeightStore::vector(const std::string& name, int64_t size) {
  if (const auto known = vector_index_.find(name); known != vector_index_.end()) return known->second;
  auto found = find_vector(name, size);
  if (!found) {
    remember(found.error());
    found = std::vector<float>();  // nothing runs; and a hostile configuration may have asked for any size
  }
  return vector_index_[name] = &vectors_.emplace_back(VectorWeight{name, std::move(*found)});
}

const VectorWeight* WeightStore::scaled_vector(const std::string& name, int64_t size, float factor) {
  for (const auto& [known, values] : scaled_) {
    if (known == factor && values.name == name) return &values;
  }
  VectorWeight& scaled = scaled_.emplace_back(factor, *vector(name, size)).second;
  for (float& value : scaled.values) value *= factor;
  return &scaled;
}

size_t WeightStore::matrix_bytes() const {
  size_t total = 0;
  for (const auto& [name, weight] : matrix_index_) total += weight->bytes();
  return total;
}

namespace {

std::string shape_words(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Expected<std::vector<float>> decode_vector(const std::string& name, TensorType type, const std::byte* data,
                                           int64_t size) {
  const TypeInfo& info = type_info(type);
  if (!info.weight || size % info.block_values != 0) {
    return fail(ErrorCode::unsupported, "tensor '{}' has type {}, which a vector of {} values cannot have", name,
                info.name, size);
  }
  std::vector<float> values(static_cast<size_t>(size));
  decode_row(type, data, values.data(), size);
  return values;
}

/// Names of the tensors that are not in `used`, in the order of the file.
template <class Tensor>
std::vector<std::string> unused_of(std::span<const Tensor> tensors, const std::unordered_set<const Tensor*>& used) {
  std::vector<std::string> names;
  for (const Tensor& tensor : tensors) {
    if (!used.contains(&tensor)) names.push_back(tensor.name);
  }
  return names;
}

class GgufStore final : public WeightStore {
 public:
  explicit GgufStore(const gguf::File& file) : file_(file) {}

  bool has(const std::string& name) const override { return file_.find_tensor(name) != nullptr; }
  std::vector<std::string> unused() const override { return unused_of(file_.tensors(), used_); }

 protected:
  Expected<Weight> find_matrix(const std::string& name, int64_t rows, int64_t cols, int64_t experts) override {
    const std::string full = name + ".weight";
    int64_t first_row = 0;
    int64_t stored_rows = rows;
    const gguf::TensorInfo* tensor = file_.find_tensor(full);
    if (tensor == nullptr && name.ends_with("_exps")) {
      // Some files hold gate and up of an expert in one matrix, gate first.
      const bool gate = name.ends_with("ffn_gate_exps");
      if (gate || name.ends_with("ffn_up_exps")) {
        const std::string fused = name.substr(0, name.rfind("ffn_")) + "ffn_gate_up_exps.weight";
        tensor = file_.find_tensor(fused);
        stored_rows = 2 * rows;
        first_row = gate ? 0 : rows;
      }
    }
    if (tensor == nullptr)
      return fail(ErrorCode::corrupt, "the file has no tensor '{}', which this architecture needs", full);
    std::vector<int64_t> wanted{cols, stored_rows};
    if (experts > 1 || tensor->shape.size() == 3) wanted.push_back(experts);
    if (tensor->shape != wanted) {
      return fail(ErrorCode::corrupt, "tensor '{}' has shape {}; the metadata of the model asks for {}", tensor->name,
                  shape_words(tensor->shape), shape_words(wanted));
    }
    used_.insert(tensor);
    Weight weight{name, tensor->type, experts, rows, cols, {}};
    if (!type_info(tensor->type).weight || cols % type_info(tensor->type).block_values != 0)
      return weight;  // refused by the caller
    const size_t stride = row_bytes(tensor->type, cols);
    for (int64_t e = 0; e < experts; ++e) {
      weight.slices.push_back(tensor->data + stride * static_cast<size_t>(e * stored_rows + first_row));
    }
    return weight;
  }

  Expected<std::vector<float>> find_vector(const std::string& name, int64_t size) override {
    const gguf::TensorInfo* tensor = file_.find_tensor(name);
    if (tensor == nullptr)
      return fail(ErrorCode::corrupt, "the file has no tensor '{}', which this architecture needs", name);
    if (tensor->values() != size) {
      return fail(ErrorCode::corrupt, "tensor '{}' has shape {}; the metadata of the model asks for [{}]", name,
                  shape_words(tensor->shape), size);
    }
    used_.insert(tensor);
    return decode_vector(name, tensor->type, tensor->data, size);
  }

 private:
  const gguf::File& file_;
  std::unordered_set<const gguf::TensorInfo*> used_;
};

Expected<TensorType> float_type(const safetensors::TensorInfo& tensor) {
  switch (tensor.dtype) {
    case safetensors::DType::f32:
      return TensorType::f32;
    case safetensors::DType::f16:
      return TensorType::f16;
    case safetensors::DType::bf16:
      return TensorType::bf16;
    default:
      return fail(ErrorCode::unsupported,
                  "tensor '{}' has type {}; weights are F32, F16 or BF16, or packed as config.json says (quantization, "
                  "quantization_config)",
                  tensor.name, safetensors::dtype_name(tensor.dtype));
  }
}

class SafetensorsStore final : public WeightStore {
 public:
  SafetensorsStore(const safetensors::Folder& folder, std::string_view architecture,
                   const huggingface::CheckpointQuantisation& quantisation)
      : folder_(folder), names_(folder, architecture), packed_(folder, quantisation) {}

  bool has(const std::string& name) const override {
    const auto mapped = translate(name);
    return folder_.find(mapped) != nullptr || (mapped.ends_with(kWeight) && packed_.has(module_of(mapped)));
  }
  std::vector<std::string> unused() const override { return unused_of(folder_.tensors(), used_); }

 protected:
  Expected<Weight> find_matrix(const std::string& name, int64_t rows, int64_t cols, int64_t experts) override {
    Weight weight{name, TensorType::f32, experts, rows, cols, {}};
    if (name.ends_with("_exps")) {
      COHORT_TRY(find_experts(name, weight));
      return weight;
    }
    const std::string mapped = translate(name + ".weight");
    if (packed_.has(module_of(mapped))) {
      COHORT_TRY(packed_.load({module_of(mapped)}, false, weight, used_));
      return weight;
    }
    COHORT_ASSIGN(const auto* tensor, find(mapped));
    COHORT_TRY(check_shape(*tensor, {rows, cols}));
    COHORT_ASSIGN(weight.type, float_type(*tensor));
    weight.slices.push_back(tensor->data);
    return weight;
  }

  Expected<std::vector<float>> find_vector(const std::string& name, int64_t size) override {
    if (name.ends_with("_exps.bias")) return find_expert_biases(name, size);
    COHORT_ASSIGN(const auto* tensor, find(translate(name)));
    COHORT_TRY(check_shape(*tensor, {size}));
    COHORT_ASSIGN(TensorType type, float_type(*tensor));
    return decode_vector(tensor->name, type, tensor->data, size);
  }

 private:
  static constexpr std::string_view kWeight = ".weight";
  static std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.size() - kWeight.size()); }

  Expected<const safetensors::TensorInfo*> find(const std::string& name) {
    const auto* tensor = folder_.find(name);
    if (tensor == nullptr)
      return fail(ErrorCode::corrupt, "the folder has no tensor '{}', which this architecture needs", name);
    used_.insert(tensor);
    return tensor;
  }

  static Expected<void> check_shape(const safetensors::TensorInfo& tensor, const std::vector<int64_t>& wanted) {
    if (tensor.shape == wanted) return {};
    return fail(ErrorCode::corrupt, "tensor '{}' has shape {}; config.json asks for {}", tensor.name,
                shape_words(tensor.shape), shape_words(wanted));
  }

  /// One tensor per expert, or gate_up_proj [experts, 2 * inner, hidden] and down_proj [experts, hidden, inner].
  Expected<void> find_experts(const std::string& name, Weight& weight) {
    const HuggingFaceNames::Experts places = names_.experts(name);
    const bool gate = name.ends_with("ffn_gate_exps");
    const bool down = name.ends_with("ffn_down_exps");
    for (const std::string& stacked : places.stacked) {
      if (packed_.has(stacked)) return packed_.load({stacked}, true, weight, used_);
      if (const auto* tensor = folder_.find(stacked + ".weight")) {
        return add_slices_of(*tensor, weight.rows, 0, weight);
      }
    }
    if (packed_.has(places.of(0))) {
      std::vector<std::string> modules;
      for (int64_t e = 0; e < weight.experts; ++e) modules.push_back(places.of(e));
      return packed_.load(modules, false, weight, used_);
    }
    const StoredRows rows = stored_rows(name);
    for (const std::string& fused : places.fused) {
      if (places.in_turn && packed_.has_blocks(fused)) return packed_.load_blocks(fused, rows, weight, used_);
      if (const auto* tensor = folder_.find(fused)) {
        if (places.in_turn) return turn(*tensor, rows, weight);
        return add_slices_of(*tensor, down ? weight.rows : 2 * weight.rows, down || gate ? 0 : weight.rows, weight);
      }
    }
    for (int64_t e = 0; e < weight.experts; ++e) {
      COHORT_ASSIGN(const auto* tensor, find(places.of(e) + ".weight"));
      COHORT_TRY(check_shape(*tensor, {weight.rows, weight.cols}));
      COHORT_ASSIGN(TensorType type, float_type(*tensor));
      if (e > 0 && type != weight.type)
        return fail(ErrorCode::unsupported, "the experts of '{}' have different types", name);
      weight.type = type;
      weight.slices.push_back(tensor->data);
    }
    return {};
  }

  /// Where gate and up have their rows in one tensor in turn.
  static StoredRows stored_rows(const std::string& name) {
    if (name.find("ffn_down_exps") != std::string::npos) return {};
    return {name.find("ffn_gate_exps") != std::string::npos ? 0 : 1, 2};
  }

  /// A tensor [experts, cols, stored rows].
  Expected<void> turn(const safetensors::TensorInfo& tensor, StoredRows rows, Weight& weight) {
    used_.insert(&tensor);
    COHORT_TRY(check_shape(tensor, {weight.experts, weight.cols, weight.rows * rows.step}));
    COHORT_ASSIGN(weight.type, float_type(tensor));
    return packed_.turn(tensor, rows, weight);
  }

  /// gate_up_proj_bias [experts, 2 * inner], gate and up in turn, and down_proj_bias [experts, hidden]; MLX has one
  /// tensor [experts, rows] for each projection.
  Expected<std::vector<float>> find_expert_biases(const std::string& name, int64_t size) {
    const HuggingFaceNames::Experts places = names_.experts(name.substr(0, name.rfind('.')));
    std::string stored = places.stacked.front() + ".bias";
    StoredRows rows;
    if (folder_.find(stored) == nullptr) {
      stored = places.fused.front() + "_bias";
      rows = stored_rows(name);
    }
    COHORT_ASSIGN(const auto* tensor, find(stored));
    const bool matrix = tensor->shape.size() == 2;
    if (!matrix || tensor->shape[0] * tensor->shape[1] != size * rows.step) {
      return fail(ErrorCode::corrupt,
                  "tensor '{}' has shape {}; config.json asks for {} values, a bias for each of the experts' outputs",
                  stored, shape_words(tensor->shape), size * rows.step);
    }
    COHORT_ASSIGN(TensorType type, float_type(*tensor));
    COHORT_ASSIGN(const auto all, decode_vector(stored, type, tensor->data, size * rows.step));
    std::vector<float> values;
    values.reserve(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) values.push_back(all[static_cast<size_t>(rows.first + rows.step * i)]);
    return values;
  }

  /// Of a tensor [experts, stored_rows, cols]: every expert's rows from `first_row` on.
  Expected<void> add_slices_of(const safetensors::TensorInfo& tensor, int64_t stored_rows, int64_t first_row,
                               Weight& weight) {
    used_.insert(&tensor);
    COHORT_TRY(check_shape(tensor, {weight.experts, stored_rows, weight.cols}));
    COHORT_ASSIGN(weight.type, float_type(tensor));
    const size_t stride = row_bytes(weight.type, weight.cols);
    for (int64_t e = 0; e < weight.experts; ++e)
      weight.slices.push_back(tensor.data + stride * static_cast<size_t>(e * stored_rows + first_row));
    return {};
  }

  std::string translate(const std::string& name) const { return names_.tensor(name); }

  const safetensors::Folder& folder_;
  HuggingFaceNames names_;
  PackedWeights packed_;
  std::unordered_set<const safetensors::TensorInfo*> used_;
};

}  // namespace

std::unique_ptr<WeightStore> make_gguf_store(const gguf::File& file) {
  return std::make_unique<GgufStore>(file);
}

std::unique_ptr<WeightStore> make_safetensors_store(const safetensors::Folder& folder, std::string_view architecture,
                                                    const huggingface::CheckpointQuantisation& quantisation) {
  return std::make_unique<SafetensorsStore>(folder, architecture, quantisation);
}

}  // namespace cohort
