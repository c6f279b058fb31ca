#include "formats/huggingface/quantisation.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"

namespace cohort::huggingface {
namespace {

using nlohmann::json;

constexpr int64_t kGroupUnit = 32;  // the block of the canonical dot product
constexpr int64_t kLargestGroup = 1 << 20;

/// whole_row: what stands for one group that is the whole row, which the rule says by 0.
constexpr int64_t kWholeRow = -1, kNoWholeRow = 0;

Expected<QuantRule> make_rule(const std::string& where, int64_t bits, int64_t group, int64_t whole_row) {
  const bool row = whole_row != kNoWholeRow && group == whole_row;
  if (!row && (group < 1 || group > kLargestGroup || group % kGroupUnit != 0)) {
    return fail(ErrorCode::unsupported, "{}: groups of {} values; multiples of {} can be run", where, group,
                kGroupUnit);
  }
  if (bits < 2 || bits > 8 || bits == 7) {
    return fail(ErrorCode::unsupported, "{}: {} bits; 2, 3, 4, 5, 6 and 8 can be run", where, bits);
  }
  return QuantRule{static_cast<int>(bits), row ? 0 : group, false};
}

Expected<QuantRule> mlx_rule(const JsonObject& object) {
  COHORT_ASSIGN(const std::string mode, object.get_string("mode", "affine"));
  if (mode == "mxfp4") {
    COHORT_ASSIGN(const int64_t bits, object.get_int("bits", 4));
    COHORT_ASSIGN(const int64_t group, object.get_int("group_size", 32));
    if (bits != 4 || group != 32) {
      return fail(ErrorCode::corrupt, "{}: mode mxfp4 has 4 bits in groups of 32, not {} in groups of {}",
                  object.where(), bits, group);
    }
    return QuantRule{4, 32, true};
  }
  if (mode != "affine") {
    return fail(ErrorCode::unsupported, "{}: the mode '{}' is not known; affine and mxfp4 are", object.where(), mode);
  }
  COHORT_ASSIGN(const int64_t bits, object.get_int("bits"));
  COHORT_ASSIGN(const int64_t group, object.get_int("group_size"));
  return make_rule(object.where(), bits, group, kNoWholeRow);
}

/// {"group_size": 64, "bits": 4, "mode": "affine", "model.layers.0.mlp.gate": {...} | false, ...}
Expected<CheckpointQuantisation> read_mlx(const json& value) {
  CheckpointQuantisation q;
  q.method = QuantMethod::mlx;
  const JsonObject object(value, "config.json: quantization");
  COHORT_ASSIGN(q.rule, mlx_rule(object));
  for (const auto& [key, entry] : value.items()) {
    if (entry.is_object()) {
      json merged = entry;  // what an entry leaves out is as in the whole model, but not across modes
      const bool same_mode = !entry.contains("mode") || entry["mode"] == value.value("mode", json("affine"));
      for (const char* shared : {"bits", "group_size", "mode"}) {
        if (same_mode && !merged.contains(shared) && value.contains(shared)) merged[shared] = value[shared];
      }
      COHORT_ASSIGN(QuantRule rule, mlx_rule(JsonObject(merged, "config.json: quantization: " + key)));
      q.modules.emplace(key, rule);
    } else if (entry.is_boolean() && key.find('.') != std::string::npos) {
      if (entry.get<bool>()) {
        q.modules.emplace(key, q.rule);
      } else {
        q.modules.emplace(key, std::nullopt);
      }
    } else if (key.find('.') != std::string::npos) {
      return fail(ErrorCode::corrupt, "config.json: quantization: '{}' is {}; an object or a boolean is needed", key,
                  entry.type_name());
    }
  }
  return q;
}

Expected<CheckpointQuantisation> read_gptq(const JsonObject& object) {
  CheckpointQuantisation q;
  q.method = QuantMethod::gptq;
  COHORT_ASSIGN(const int64_t bits, object.get_int("bits"));
  COHORT_ASSIGN(const int64_t group, object.get_int("group_size"));
  COHORT_ASSIGN(q.rule, make_rule(object.where(), bits, group, kWholeRow));
  if (bits == 5 || bits == 6)
    return fail(ErrorCode::unsupported, "{}: {} bits; GPTQ has 2, 3, 4, 8", object.where(), bits);
  COHORT_ASSIGN(const std::string format, object.get_string("checkpoint_format", "gptq"));
  if (format != "gptq" && format != "gptq_v2") {
    return fail(ErrorCode::unsupported, "{}: the checkpoint_format '{}' is not known; gptq and gptq_v2 are",
                object.where(), format);
  }
  q.zeros_less_one = format == "gptq";
  return q;
}

Expected<CheckpointQuantisation> read_awq(const JsonObject& object) {
  CheckpointQuantisation q;
  q.method = QuantMethod::awq;
  COHORT_ASSIGN(const int64_t bits, object.get_int(object.contains("bits") ? "bits" : "w_bit"));
  COHORT_ASSIGN(const int64_t group, object.get_int(object.contains("group_size") ? "group_size" : "q_group_size"));
  COHORT_ASSIGN(q.rule, make_rule(object.where(), bits, group, kWholeRow));
  if (bits != 4) return fail(ErrorCode::unsupported, "{}: {} bits; AWQ has 4", object.where(), bits);
  COHORT_ASSIGN(std::string version, object.get_string("version", "gemm"));
  std::ranges::transform(version, version.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (version != "gemm") {
    return fail(ErrorCode::unsupported, "{}: the version '{}' is not known; gemm is", object.where(), version);
  }
  return q;
}

/// compressed-tensors, format pack-quantized: integers of 4 or 8 bits.
Expected<CheckpointQuantisation> read_packed_integers(const JsonObject& weights) {
  CheckpointQuantisation q;
  q.method = QuantMethod::compressed_tensors;
  COHORT_ASSIGN(const int64_t bits, weights.get_int("num_bits"));
  COHORT_ASSIGN(const std::string type, weights.get_string("type", "int"));
  COHORT_ASSIGN(const std::string strategy, weights.get_string("strategy", "group"));
  if (type != "int" || (bits != 4 && bits != 8)) {
    return fail(ErrorCode::unsupported, "{}: {} bits of type {}; int with 4 or 8 bits can be run", weights.where(),
                bits, type);
  }
  if (strategy != "group" && strategy != "channel") {
    return fail(ErrorCode::unsupported, "{}: the strategy '{}' is not known; group and channel are", weights.where(),
                strategy);
  }
  int64_t size = kWholeRow;
  if (strategy == "group") {
    COHORT_ASSIGN(size, weights.get_int("group_size"));
  }
  COHORT_ASSIGN(q.rule, make_rule(weights.where(), bits, size, kWholeRow));
  COHORT_ASSIGN(q.symmetric, weights.get_bool("symmetric", true));
  return q;
}

/// The blocks of an FP8 checkpoint, `key` of `value`: [rows, cols].
Expected<void> read_blocks(const std::string& where, const json& value, const char* key, CheckpointQuantisation& q) {
  const auto block = value.find(key);
  if (block == value.end() || !block->is_array() || block->size() != 2 || !(*block)[0].is_number_integer() ||
      !(*block)[1].is_number_integer()) {
    return fail(
        ErrorCode::unsupported,
        "{}: {} must hold two numbers, such as [128, 128]; it is {} (FP8 checkpoints with one scale for a whole "
        "matrix are not supported)",
        where, key, block == value.end() ? "missing" : block->dump());
  }
  q.scale_rows = (*block)[0].get<int64_t>();
  q.scale_cols = (*block)[1].get<int64_t>();
  if (q.scale_rows < 1 || q.scale_cols < kGroupUnit || q.scale_cols % kGroupUnit != 0 || q.scale_rows > kLargestGroup ||
      q.scale_cols > kLargestGroup) {
    return fail(ErrorCode::unsupported,
                "{}: blocks of {} x {}; 1 to {} rows and a multiple of {} columns, at most {}, can be run", where,
                q.scale_rows, q.scale_cols, kLargestGroup, kGroupUnit, kLargestGroup);
  }
  return {};
}

/// compressed-tensors, format float-quantized: E4M3 with a scale for each block or for each row (channel).
Expected<CheckpointQuantisation> read_compressed_fp8(const JsonObject& weights, const json& value) {
  CheckpointQuantisation q;
  q.method = QuantMethod::fp8;
  q.fp8_scales = ".weight_scale";
  COHORT_ASSIGN(const int64_t bits, weights.get_int("num_bits"));
  COHORT_ASSIGN(const std::string type, weights.get_string("type", "int"));
  COHORT_ASSIGN(const std::string strategy, weights.get_string("strategy", "tensor"));
  COHORT_ASSIGN(const bool symmetric, weights.get_bool("symmetric", true));
  if (type != "float" || bits != 8 || !symmetric || (strategy != "block" && strategy != "channel")) {
    return fail(ErrorCode::unsupported,
                "{}: {} {} bits of type {} with strategy {}; symmetric, 8 bits, float, and block or channel can be run",
                weights.where(), symmetric ? "symmetric" : "asymmetric", bits, type, strategy);
  }
  if (strategy == "block") {
    COHORT_TRY(read_blocks(weights.where(), value, "block_structure", q));
  } else {
    q.scale_rows = 1;
    q.scale_cols = kLargestGroup;
  }
  return q;
}

Expected<CheckpointQuantisation> read_compressed(const JsonObject& object, const json& value) {
  COHORT_ASSIGN(const std::string format, object.get_string("format"));
  if (format != "pack-quantized" && format != "float-quantized") {
    return fail(ErrorCode::unsupported, "{}: the format '{}' is not known; pack-quantized and float-quantized are",
                object.where(), format);
  }
  const auto groups = value.find("config_groups");
  if (groups == value.end() || !groups->is_object() || groups->size() != 1) {
    return fail(ErrorCode::unsupported, "{}: config_groups must hold one group of modules; it holds {}", object.where(),
                groups == value.end() ? 0 : groups->size());
  }
  const json& entry = groups->begin().value();
  const JsonObject group(entry, object.where() + ": config_groups: " + groups->begin().key());
  COHORT_ASSIGN(const JsonObject weights, group.get_object("weights"));
  return format == "float-quantized" ? read_compressed_fp8(weights, entry["weights"]) : read_packed_integers(weights);
}

Expected<CheckpointQuantisation> read_fp8(const JsonObject& object, const json& value) {
  CheckpointQuantisation q;
  q.method = QuantMethod::fp8;
  COHORT_TRY(read_blocks(object.where(), value, "weight_block_size", q));
  COHORT_ASSIGN(const std::string format, object.get_string("fmt", "e4m3"));
  if (format != "e4m3") {
    return fail(ErrorCode::unsupported, "{}: the FP8 format '{}' is not known; e4m3 is", object.where(), format);
  }
  return q;
}

}  // namespace

std::string_view method_name(QuantMethod method) {
  switch (method) {
    case QuantMethod::none:
      return "none";
    case QuantMethod::mlx:
      return "MLX";
    case QuantMethod::gptq:
      return "GPTQ";
    case QuantMethod::awq:
      return "AWQ";
    case QuantMethod::compressed_tensors:
      return "compressed-tensors";
    case QuantMethod::mxfp4:
      return "MXFP4";
    case QuantMethod::fp8:
      break;
  }
  return "FP8";
}

std::optional<QuantRule> CheckpointQuantisation::rule_of(const std::string& module) const {
  if (const auto found = modules.find(module); found != modules.end()) return found->second;
  return method == QuantMethod::none ? std::nullopt : std::optional(rule);
}

Expected<CheckpointQuantisation> read_quantisation(const json& config) {
  const auto find = [&](const char* key) -> const json* {
    const auto found = config.find(key);
    return found == config.end() || found->is_null() ? nullptr : &*found;
  };
  const json* mlx = find("quantization");
  const json* other = find("quantization_config");
  for (const auto& [key, value] : {std::pair("quantization", mlx), std::pair("quantization_config", other)}) {
    if (value != nullptr && !value->is_object())
      return fail(ErrorCode::corrupt, "config.json: '{}' is {}; an object is needed", key, value->type_name());
  }
  if (mlx != nullptr && other != nullptr && *mlx != *other) {
    return fail(
        ErrorCode::corrupt,
        "config.json: 'quantization' and 'quantization_config' are both there and differ; remove the wrong one");
  }
  if (mlx == nullptr && other == nullptr) return CheckpointQuantisation{};
  const json& value = mlx != nullptr ? *mlx : *other;
  if (mlx != nullptr || !value.contains("quant_method")) return read_mlx(value);
  const JsonObject object(value, "config.json: quantization_config");
  COHORT_ASSIGN(const std::string method, object.get_string("quant_method"));
  if (method == "gptq") return read_gptq(object);
  if (method == "awq") return read_awq(object);
  if (method == "compressed-tensors") return read_compressed(object, value);
  if (method == "fp8") return read_fp8(object, value);
  if (method == "mxfp4") {
    CheckpointQuantisation q;
    q.method = QuantMethod::mxfp4;
    q.rule = {4, 32, true};
    return q;
  }
  return fail(ErrorCode::unsupported,
              "config.json: the quantisation '{}' is not known; mlx, gptq, awq, compressed-tensors, fp8 and mxfp4 are",
              method);
}

}  // namespace cohort::huggingface
