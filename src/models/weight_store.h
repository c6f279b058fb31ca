// Weights by their GGUF names, wherever they come from. Families ask for what they need; the first thing that is
// missing or has another shape than the config says is remembered and reported by the builder, so that a family reads
// like its equations.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/error.h"
#include "formats/huggingface/quantisation.h"
#include "models/weights.h"

namespace cohort {

class WeightStore {
 public:
  virtual ~WeightStore() = default;

  virtual bool has(const std::string& name) const = 0;
  /// The matrix NAME.weight as [experts, rows, cols]. Never null; on error a placeholder, and error() is set.
  const Weight* matrix(const std::string& name, int64_t rows, int64_t cols, int64_t experts = 1);
  /// The vector NAME (with its ending: "blk.0.attn_norm.weight") as f32.
  const VectorWeight* vector(const std::string& name, int64_t size);
  /// The vector if the model has it, else null.
  const VectorWeight* optional_vector(const std::string& name, int64_t size) {
    return has(name) ? vector(name, size) : nullptr;
  }

  /// The vector times `factor`; no part of vectors().
  const VectorWeight* scaled_vector(const std::string& name, int64_t size, float factor);

  const std::optional<Error>& error() const { return error_; }
  /// What was handed out so far, each once, in the order of the first request.
  const std::deque<Weight>& matrices() const { return matrices_; }
  const std::deque<VectorWeight>& vectors() const { return vectors_; }
  /// Names (of the source) of tensors that nothing has asked for so far.
  virtual std::vector<std::string> unused() const = 0;
  /// Sum of the bytes of all matrices handed out (each once).
  size_t matrix_bytes() const;

 protected:
  virtual Expected<Weight> find_matrix(const std::string& name, int64_t rows, int64_t cols, int64_t experts) = 0;
  virtual Expected<std::vector<float>> find_vector(const std::string& name, int64_t size) = 0;

 private:
  void remember(const Error& error) {
    if (!error_) error_ = error;
  }
  std::deque<Weight> matrices_;  // deque: pointers stay valid
  std::deque<VectorWeight> vectors_;
  std::deque<std::pair<float, VectorWeight>> scaled_;
  std::unordered_map<std::string, const Weight*> matrix_index_;
  std::unordered_map<std::string, const VectorWeight*> vector_index_;
  std::optional<Error> error_;
};

namespace gguf {
class File;
}
namespace safetensors {
class Folder;
}

/// Both keep references: the file must outlive the store.
std::unique_ptr<WeightStore> make_gguf_store(const gguf::File& file);
/// `architecture` chooses the name map. F32, F16 and BF16 tensors; experts one by one, fused or stacked; packed weights
/// as `quantisation` describes them.
std::unique_ptr<WeightStore> make_safetensors_store(const safetensors::Folder& folder, std::string_view architecture,
                                                    const huggingface::CheckpointQuantisation& quantisation = {});

}  // namespace cohort
