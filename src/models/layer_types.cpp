#include "models/layer_types.h"

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/result.h"

namespace cohort {
namespace {

using nlohmann::json;

constexpr int64_t kMaxPeriod = 1 << 24;

std::string shown(const json& value) {
  return printable(value.dump(-1, ' ', false, json::error_handler_t::replace), 80);
}

}  // namespace

Expected<std::vector<bool>> read_layer_types(const JsonObject& config, int32_t layers) {
  const json* types = config.find("layer_types");
  if (types == nullptr || !types->is_array() || types->size() != static_cast<size_t>(layers)) {
    return fail(ErrorCode::corrupt, "{}: 'layer_types' is {}; a list of {} names is needed (num_hidden_layers)",
                config.where(), types == nullptr ? "missing" : shown(*types), layers);
  }
  std::vector<bool> sliding;
  for (const json& type : *types) {
    const bool slides = type == "sliding_attention";
    if (!slides && type != "full_attention") {
      return fail(ErrorCode::unsupported,
                  "{}: layer_types has {}; supported are \"sliding_attention\" and \"full_attention\"", config.where(),
                  shown(type));
    }
    sliding.push_back(slides);
  }
  return sliding;
}

std::vector<bool> sliding_but_every(int64_t period, int32_t layers) {
  std::vector<bool> sliding(static_cast<size_t>(layers));
  for (size_t i = 0; i < sliding.size(); ++i) sliding[i] = period > 0 && (static_cast<int64_t>(i) + 1) % period != 0;
  return sliding;
}

Expected<std::vector<bool>> read_sliding_pattern(const gguf::Metadata& metadata, const std::string& key,
                                                 int32_t layers) {
  if (const auto period = metadata.get_i64(key)) {
    if (*period < 0 || *period > kMaxPeriod)
      return fail(ErrorCode::corrupt, "'{}' is {}; expected 0 to {}", key, *period, kMaxPeriod);
    return sliding_but_every(*period, layers);
  }
  COHORT_ASSIGN(auto list, metadata.get_bool_array(key));
  if (list.size() != static_cast<size_t>(layers)) {
    return fail(ErrorCode::corrupt, "'{}' has {} values; one for each of {} layers is needed", key, list.size(),
                layers);
  }
  return list;
}

}  // namespace cohort
