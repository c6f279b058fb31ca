#include "measure/inspect_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <type_traits>

#include "base/printable.h"
#include "base/progress.h"
#include "base/result.h"
#include "formats/gguf/gguf.h"
#include "formats/huggingface/huggingface.h"
#include "formats/huggingface/quantisation.h"
#include "formats/safetensors/safetensors.h"

namespace cohort {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

void add_tensor(FileSummary& out, std::string name, std::string type, std::vector<int64_t> shape, int64_t values,
                size_t bytes) {
  out.tensors.push_back({std::move(name), std::move(type), std::move(shape), static_cast<uint64_t>(values), bytes});
}

void count(FileSummary& out) {
  std::map<std::string, TypeSummary> types;
  for (const TensorSummary& tensor : out.tensors) {
    TypeSummary& type = types[tensor.type];
    type.type = tensor.type;
    ++type.tensors;
    type.parameters += tensor.parameters;
    type.bytes += tensor.bytes;
    out.parameters += tensor.parameters;
    out.tensor_bytes += tensor.bytes;
  }
  for (auto& [name, type] : types) out.types.push_back(std::move(type));
  std::stable_sort(out.types.begin(), out.types.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
}

Expected<FileSummary> summarise_gguf(const fs::path& path) {
  COHORT_ASSIGN(auto file, gguf::File::open(path));
  FileSummary out;
  out.path = path;
  out.format = fmt::format("GGUF {}", file.version());
  out.files = file.parts();
  out.file_bytes = file.file_bytes();
  if (auto text = file.metadata().get_string("general.architecture")) out.architecture = *text;
  if (auto text = file.metadata().get_string("general.name")) out.name = *text;
  out.metadata.assign(file.metadata().entries().begin(), file.metadata().entries().end());
  for (const auto& tensor : file.tensors()) {
    add_tensor(out, tensor.name, std::string(type_info(tensor.type).name), tensor.shape, tensor.values(), tensor.bytes);
  }
  return out;
}

gguf::Value config_value(const nlohmann::json& value) {
  if (value.is_string()) return gguf::Value(value.get<std::string>());
  if (value.is_boolean()) return gguf::Value(value.get<bool>());
  if (value.is_number_unsigned()) return gguf::Value(value.get<uint64_t>());
  if (value.is_number_integer()) return gguf::Value(value.get<int64_t>());
  if (value.is_number_float()) return gguf::Value(value.get<double>());
  return gguf::Value(value.dump());
}

/// The values that a tensor of a folder stands for: packed words hold several, and what stands beside a packed weight
/// (scales, zero points, the order of columns) describes values that are counted there.
int64_t values_of(const safetensors::TensorInfo& tensor, const safetensors::Folder& weights,
                  const huggingface::CheckpointQuantisation& quantisation) {
  using huggingface::QuantMethod;
  const auto module_of = [&](std::string_view suffix) {
    return tensor.name.ends_with(suffix) ? tensor.name.substr(0, tensor.name.size() - suffix.size()) : std::string();
  };
  const auto beside = [&](std::initializer_list<std::string_view> suffixes, std::string_view weight) {
    return std::any_of(suffixes.begin(), suffixes.end(), [&](std::string_view suffix) {
      const std::string module = module_of(suffix);
      return !module.empty() && weights.find(module + std::string(weight)) != nullptr;
    });
  };
  const auto unpacked = [&](const std::string& module) {
    const auto rule = quantisation.rule_of(module);
    return rule && rule->bits > 0 ? static_cast<int64_t>(tensor.bytes) * 8 / rule->bits : tensor.values();
  };
  switch (quantisation.method) {
    case QuantMethod::none:
      break;
    case QuantMethod::mlx:
      if (beside({".scales", ".biases"}, ".weight")) return 0;
      if (const std::string module = module_of(".weight");
          !module.empty() && weights.find(module + ".scales") != nullptr)
        return unpacked(module);
      break;
    case QuantMethod::gptq:
    case QuantMethod::awq:
      if (beside({".scales", ".qzeros", ".g_idx"}, ".qweight")) return 0;
      if (const std::string module = module_of(".qweight"); !module.empty()) return unpacked(module);
      break;
    case QuantMethod::compressed_tensors:
      if (beside({".weight_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx"}, ".weight_packed")) return 0;
      if (const std::string module = module_of(".weight_packed"); !module.empty()) return unpacked(module);
      break;
    case QuantMethod::mxfp4:
      if (beside({"_scales"}, "_blocks")) return 0;
      if (const std::string module = module_of("_blocks"); !module.empty()) return unpacked(module);
      break;
    case QuantMethod::fp8:
      if (beside({".weight_scale_inv", ".weight_scale"}, ".weight")) return 0;
  }
  return tensor.values();
}

Expected<FileSummary> summarise_folder(const fs::path& path) {
  COHORT_ASSIGN(auto files, huggingface::Folder::open(path));
  COHORT_ASSIGN(auto weights, safetensors::Folder::open(path));
  FileSummary out;
  out.path = path;
  out.format = "safetensors";
  out.files = weights.files();
  out.file_bytes = weights.file_bytes();
  std::error_code ignored;
  out.name = fs::weakly_canonical(path, ignored).filename().string();
  for (const auto& [key, value] : files.config().items()) {
    if (key == "model_type" && value.is_string()) out.architecture = value.get<std::string>();
    out.metadata.emplace_back(key, config_value(value));
  }
  // A configuration that this build cannot read is no reason not to show the tensors, as they are stored.
  const auto quantisation =
      huggingface::read_quantisation(files.config()).value_or(huggingface::CheckpointQuantisation{});
  for (const auto& tensor : weights.tensors()) {
    std::string type(safetensors::dtype_name(tensor.dtype));
    std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::tolower(c); });
    add_tensor(out, tensor.name, std::move(type), tensor.shape, values_of(tensor, weights, quantisation), tensor.bytes);
  }
  return out;
}

// ---- values ----

ordered_json value_json(const gguf::Value& value, size_t max_items);

struct ToJson {
  size_t max_items;
  template <class T>
  ordered_json operator()(const T& scalar) const {
    return scalar;
  }
  /// The shortest decimal that reads back as this float, instead of its exact value with 17 digits.
  ordered_json operator()(float number) const {
    return std::isfinite(number) ? std::stod(fmt::format("{}", number)) : number;
  }
  template <class T>
  ordered_json operator()(const std::vector<T>& items) const {
    ordered_json out = ordered_json::array();
    for (size_t i = 0; i < std::min(items.size(), max_items); ++i) out.push_back((*this)(static_cast<T>(items[i])));
    return out;
  }
  ordered_json operator()(const gguf::StringArray& items) const {
    ordered_json out = ordered_json::array();
    for (size_t i = 0; i < std::min(items.size(), max_items); ++i) out.push_back(items[i]);
    return out;
  }
  ordered_json operator()(const gguf::NestedArray& nested) const {
    ordered_json out = ordered_json::array();
    for (size_t i = 0; i < std::min(nested.items.size(), max_items); ++i)
      out.push_back(value_json(nested.items[i], max_items));
    return out;
  }
};

ordered_json value_json(const gguf::Value& value, size_t max_items) {
  return std::visit(ToJson{max_items}, value.variant());
}

std::string dump(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string short_value(const gguf::Value& value) {
  constexpr size_t kShown = 60;
  if (const auto* text = std::get_if<std::string>(&value.variant())) return printable(*text, kShown);
  if (value.type() != gguf::ValueType::array) return dump(value_json(value, 0));
  constexpr size_t kItems = 6;
  std::string items = dump(value_json(value, kItems));
  if (value.count() > kItems) items = items.substr(0, items.size() - 1) + ",...]";
  return printable(items, kShown + 20);
}

std::string thousands(uint64_t number) {
  std::string digits = std::to_string(number);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

template <class Items, class Text>
size_t widest(const Items& items, Text text) {
  size_t width = 0;
  for (const auto& item : items) width = std::max(width, text(item).size());
  return width;
}

}  // namespace

Expected<FileSummary> summarise(const fs::path& path) {
  std::error_code ignored;
  COHORT_ASSIGN(FileSummary out, fs::is_directory(path, ignored) ? summarise_folder(path) : summarise_gguf(path));
  count(out);
  return out;
}

std::string summary_text(const FileSummary& s) {
  std::string out = fmt::format("{}\n", s.path.string());
  out += fmt::format("  format      {}, {} file{}, {}\n", s.format, s.files, s.files == 1 ? "" : "s",
                     human_bytes(s.file_bytes));
  if (!s.architecture.empty())
    out += fmt::format("  model       {} ({})\n", printable(s.name, 80), printable(s.architecture, 40));
  out += fmt::format("  parameters  {} in {} tensors\n", thousands(s.parameters), s.tensors.size());
  out += fmt::format("  weights     {}, {:.2f} bits each\n", human_bytes(s.tensor_bytes), s.bits_per_weight());
  out += "\ntypes\n";
  for (const TypeSummary& t : s.types) {
    out += fmt::format("  {:<9} {:>6} tensors {:>16} parameters {:>12}\n", t.type, t.tensors, thousands(t.parameters),
                       human_bytes(t.bytes));
  }
  out += fmt::format("\nmetadata ({})\n", s.metadata.size());
  constexpr size_t kName = 64;
  size_t key_width = std::min(kName, widest(s.metadata, [](const auto& entry) { return entry.first; }));
  size_t type_width = widest(s.metadata, [](const auto& entry) { return entry.second.describe(); });
  for (const auto& [key, value] : s.metadata) {
    out += fmt::format("  {:<{}}  {:<{}}  {}\n", printable(key, kName), key_width, value.describe(), type_width,
                       short_value(value));
  }
  out += fmt::format("\ntensors ({})\n", s.tensors.size());
  size_t name_width = std::min(kName, widest(s.tensors, [](const auto& tensor) { return tensor.name; }));
  for (const TensorSummary& tensor : s.tensors) {
    out += fmt::format("  {:<{}}  {:<9} {:>12}  [{}]\n", printable(tensor.name, kName), name_width, tensor.type,
                       human_bytes(tensor.bytes), fmt::join(tensor.shape, ", "));
  }
  return out;
}

ordered_json summary_json(const FileSummary& s, size_t max_items) {
  ordered_json out = {{"path", s.path.string()},
                      {"format", s.format},
                      {"files", s.files},
                      {"file_bytes", s.file_bytes},
                      {"architecture", s.architecture},
                      {"name", s.name},
                      {"parameters", s.parameters},
                      {"weight_bytes", s.tensor_bytes},
                      {"bits_per_weight", s.bits_per_weight()}};
  out["types"] = ordered_json::array();
  for (const TypeSummary& t : s.types) {
    out["types"].push_back(
        {{"type", t.type}, {"tensors", t.tensors}, {"parameters", t.parameters}, {"bytes", t.bytes}});
  }
  out["metadata"] = ordered_json::object();
  for (const auto& [key, value] : s.metadata) {
    ordered_json entry = {{"type", value.type() == gguf::ValueType::array
                                       ? fmt::format("array of {}", gguf::value_type_name(value.element_type()))
                                       : std::string(gguf::value_type_name(value.type()))}};
    if (value.type() == gguf::ValueType::array) entry["count"] = value.count();
    entry["value"] = value_json(value, max_items);
    out["metadata"][key] = std::move(entry);
  }
  out["tensors"] = ordered_json::array();
  for (const TensorSummary& t : s.tensors) {
    out["tensors"].push_back(
        {{"name", t.name}, {"type", t.type}, {"shape", t.shape}, {"parameters", t.parameters}, {"bytes", t.bytes}});
  }
  return out;
}

std::string value_text(const gguf::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value.variant())) return *text;
  return dump(value_json(value, SIZE_MAX));
}

}  // namespace cohort
