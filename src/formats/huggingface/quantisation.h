// What config.json says about the quantisation of a checkpoint: MLX ("quantization"), GPTQ, AWQ, compressed-tensors,
// block-scaled FP8 and the MXFP4 experts of gpt-oss ("quantization_config").
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"

namespace cohort::huggingface {

enum class QuantMethod { none, mlx, gptq, awq, compressed_tensors, fp8, mxfp4 };
std::string_view method_name(QuantMethod method);

/// How the weights of one module are stored.
struct QuantRule {
  int bits = 4;
  int64_t group = 64;  // values along K that share a scale; 0: the whole row
  bool mxfp4 = false;  // MLX mode "mxfp4": E2M1 with E8M0 scales, groups of 32
};

struct CheckpointQuantisation {
  QuantMethod method = QuantMethod::none;
  QuantRule rule;  // of modules without their own
  /// MLX: modules with their own rule, or none (false): then their weights are floats.
  std::map<std::string, std::optional<QuantRule>> modules;
  bool zeros_less_one = false;                   // GPTQ's first format stores zero points less one
  bool symmetric = false;                        // compressed-tensors: there are no zero points
  int64_t scale_rows = 1, scale_cols = 128;      // FP8: the block that shares a scale
  std::string fp8_scales = ".weight_scale_inv";  // FP8: what the tensor of a module's scales is called

  /// The rule of a module; none: its weights are floats.
  std::optional<QuantRule> rule_of(const std::string& module) const;
};

/// Reads the keys "quantization" and "quantization_config". corrupt: both are there and differ, a key is missing or has
/// another type; unsupported: a method, format or number of bits that this build does not know.
Expected<CheckpointQuantisation> read_quantisation(const nlohmann::json& config);

}  // namespace cohort::huggingface
