// Which type each tensor of a quantised model gets. The named mixes are those people know from llama.cpp: most matrices
// have the base type, some that matter more have wider ones.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"
#include "formats/gguf/metadata.h"
#include "quant/types.h"

namespace cohort {

enum class Mix : uint8_t {
  plain,  // the base type everywhere
  q4_0,
  q5_0,
  q8_0,
  q2_k,
  q2_k_s,
  q3_k_s,
  q3_k_m,
  q3_k_l,
  q4_k_s,
  q4_k_m,
  q5_k_s,
  q5_k_m,
  q6_k,
  iq1_s,
  iq1_m,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq2_m,
  iq3_xxs,
  iq3_xs,
  iq3_s,
  iq3_m,
  iq4_nl,
  iq4_xs,
  ternary,      // tq1_0, tq2_0
  fp4_experts,  // MXFP4 experts, everything else Q8_0
  other,        // base type, head in Q6_K or wider
};

struct MixInfo {
  std::string_view name;  // "q4_k_m"
  Mix mix;
  TensorType base;
  uint32_t file_type;  // llama.cpp's general.file_type
};

/// All mixes; the first of each base type is what the type's own name means ("q4_k" is "q4_k_m").
std::span<const MixInfo> all_mixes();
/// By name, in any case; nullptr when there is none.
const MixInfo* find_mix(std::string_view name);

/// What the choice depends on.
struct MixModel {
  int64_t layers = 0, experts = 0;
  int64_t query_groups = 1;  // query heads that share a KV head
  bool tied = false;         // the embedding is the head
  bool importance = false;   // an importance matrix will be used
};
/// From a GGUF file's metadata; missing keys leave the defaults.
MixModel mix_model(const gguf::Metadata& metadata, bool tied);

/// Where MoE models differ from llama.cpp's mixes: attention, a few percent of the weights that every token passes, is
/// at least one step wider than the experts.
enum class AttentionWidth { wider, as_mix };

/// False for what stays as it is: vectors, norms, routers, convolutions and other small tensors whose error would be
/// felt.
bool is_quantised_by_mixes(std::string_view name, std::span<const int64_t> shape);

/// The type of matrix `name`, before fallbacks for rows that are no whole number of blocks.
TensorType mix_type(const MixInfo& mix, const MixModel& model, AttentionWidth attention, const std::string& name);

/// `type`, or what it is replaced with when rows of `cols` values are no whole number of its blocks: as llama.cpp does,
/// so that both make the same file.
TensorType fitting_type(TensorType type, int64_t cols);

/// Types whose encoders have so few bits that without an importance matrix the result is unusable.
bool needs_importance(TensorType type);

}  // namespace cohort
