// Weights of checkpoint folders that are packed integers beside scales, laid out as rows of blocks that the kernels
// know. The checkpoint's own integers and scales are kept: nothing is quantised again.
//
//   value = s * (q - z), z an integer (GPTQ, AWQ, compressed-tensors): Q4_0, Q5_0 or Q8_0 blocks, whichever is the
//           smallest that holds every q - z of the matrix, where all scales are exact in f16
//   value = s * q + b (MLX affine): Q4_1 (up to 4 bits) or Q5_1 where all s and b are exact in f16
//   otherwise Affine8 (f32 scale and offset, int8 codes); with 8 bits the code is q - 128 and the offset b + 128 s,
//   which
//           is exact in f32 but for groups whose b is thousands of times larger or smaller than 128 s
//   with activation order (desc_act), which scatters the columns of a group: F32, s * (q - z) of each column's group
//   MXFP4 with another order of nibbles (MLX, gpt-oss); FP8 values beside the scale of their block
//   floats with the input first (gpt-oss): the same values, each row of outputs together
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/thread_team.h"
#include "cohort/error.h"
#include "formats/huggingface/quantisation.h"
#include "formats/safetensors/safetensors.h"
#include "models/made_slices.h"
#include "models/weights.h"

namespace cohort {

class PackedSource;

/// Where the rows of a matrix are that is stored together with another one: row r is stored row first + step * r.
struct StoredRows {
  int64_t first = 0, step = 1;
};

/// Fills Weight::slices from a folder's packed tensors. They are made while somebody holds them (SliceHold), so this
/// and the folder must live as long as the weights.
class PackedWeights {
 public:
  PackedWeights(const safetensors::Folder& folder, huggingface::CheckpointQuantisation quantisation);
  ~PackedWeights();
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  /// Is the module ("model.layers.0.self_attn.q_proj") stored packed? By the tensors that it has.
  bool has(const std::string& module) const;
  /// The same of gpt-oss's fused experts, which are no modules with weights of their own.
  bool has_blocks(const std::string& module) const;

  /// One module for each expert, or one module [experts, rows, cols] (stacked), or an ordinary matrix. Sets type and
  /// slices of `weight`; names of tensors that were read are added to `used`. Errors name the tensor, its shape and
  /// what config.json says.
  Expected<void> load(const std::vector<std::string>& modules, bool stacked, Weight& weight,
                      std::unordered_set<const safetensors::TensorInfo*>& used);

  /// Experts of gpt-oss: MODULE_blocks [experts, stored rows, cols / 32, 16] and MODULE_scales.
  Expected<void> load_blocks(const std::string& module, StoredRows rows, Weight& weight,
                             std::unordered_set<const safetensors::TensorInfo*>& used);
  /// Slices of floats of weight.type that `tensor` has with the input first: [experts, cols, stored rows].
  Expected<void> turn(const safetensors::TensorInfo& tensor, StoredRows rows, Weight& weight);

 private:
  using Tensor = safetensors::TensorInfo;
  using Used = std::unordered_set<const Tensor*>;
  Expected<const Tensor*> find(const std::string& name, Used& used) const;
  Expected<std::vector<std::unique_ptr<PackedSource>>> sources(const std::string& module, const Weight& weight,
                                                               int64_t experts, Used& used) const;
  Expected<void> repack(std::vector<std::unique_ptr<PackedSource>> sources, Weight& weight);
  Expected<void> load_mxfp4(const std::string& module, int64_t experts, Weight& weight, Used& used);
  Expected<void> add_mxfp4(const Tensor& codes, const Tensor& scales, int64_t experts, StoredRows rows, Weight& weight);
  Expected<void> load_fp8(const std::string& module, Weight& weight, Used& used);
  Expected<void> add_slices(Weight& weight, int64_t count, MadeSlices::Make make);

  const safetensors::Folder& folder_;
  huggingface::CheckpointQuantisation quantisation_;
  ThreadTeam team_;
};

}  // namespace cohort
