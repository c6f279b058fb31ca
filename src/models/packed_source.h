// Reading packed checkpoint tensors row by row: the integer of every value and the parameters of every group.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/error.h"
#include "formats/huggingface/quantisation.h"
#include "formats/safetensors/safetensors.h"

namespace cohort {

/// The packed tensors of a module; those that a method does not have are null.
struct PackedTensors {
  const safetensors::TensorInfo* weight = nullptr;
  const safetensors::TensorInfo* scales = nullptr;
  const safetensors::TensorInfo* zeros = nullptr;  // or MLX's biases
  const safetensors::TensorInfo* order = nullptr;  // the group of each column: g_idx
};

/// A matrix [rows, cols] whose value (r, c) is scale * (code - zero), or scale * code + offset when has_offset().
class PackedSource {
 public:
  explicit PackedSource(const PackedTensors& packed) : tensors(packed) {}
  virtual ~PackedSource() = default;
  virtual bool has_offset() const = 0;
  /// Unsigned codes of a row. [cols]
  virtual void codes(int64_t row, uint8_t* out) const = 0;
  /// Scale and zero point (a whole number) or offset of a row's groups. [cols / group] each
  virtual void groups(int64_t row, float* scale, float* zero) const = 0;

  const PackedTensors tensors;
  int64_t rows = 0, cols = 0, group = 0;
  int bits = 0;
  /// The group of each column where activation order (desc_act) has scattered the groups; else empty, and the groups
  /// lie side by side.
  std::vector<int32_t> group_of;
  std::string name;  // of the module, for messages
};

/// Expert `expert` of `experts` stacked matrices (1: the tensors are [rows, ...]). Checks every shape and type against
/// rows, cols and the rule.
Expected<std::unique_ptr<PackedSource>> make_packed_source(huggingface::QuantMethod method,
                                                           const huggingface::QuantRule& rule, bool zeros_less_one,
                                                           const PackedTensors& tensors, const std::string& module,
                                                           int64_t rows, int64_t cols, int64_t expert, int64_t experts);

/// A value of type F32, F16 or BF16 at `index` of the tensor.
float load_float(const safetensors::TensorInfo& tensor, int64_t index);

}  // namespace cohort
