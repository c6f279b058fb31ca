#include "formats/huggingface/huggingface.h"

#include <nlohmann/json.hpp>
#include <system_error>

#include "base/file.h"
#include "base/json.h"
#include "base/result.h"

namespace cohort::huggingface {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool file_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Expected<std::shared_ptr<const json>> read_object(const fs::path& path) {
  COHORT_ASSIGN(json value, read_json_file(path));
  if (!value.is_object()) {
    return fail(ErrorCode::corrupt, "'{}' holds {}; an object is needed", path.string(), value.type_name());
  }
  return std::make_shared<const json>(std::move(value));
}

Expected<std::shared_ptr<const json>> read_optional(const fs::path& path) {
  if (!file_exists(path)) return nullptr;
  return read_object(path);
}

/// The template text of a "chat_template" value: a string, or a list of {"name", "template"}.
std::optional<std::string> template_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return std::nullopt;
  for (const json& item : value) {
    if (!item.is_object() || item.value("name", json()) != "default") continue;
    auto text = item.find("template");
    if (text != item.end() && text->is_string()) return text->get<std::string>();
  }
  return std::nullopt;
}

Expected<std::optional<std::string>> find_template(const fs::path& directory, const json* tokenizer_config) {
  constexpr size_t kMaxTemplateBytes = size_t{16} << 20;
  if (file_exists(directory / "chat_template.jinja")) {
    COHORT_ASSIGN(std::string text, read_text_file(directory / "chat_template.jinja", kMaxTemplateBytes));
    return text;
  }
  if (tokenizer_config == nullptr) return std::nullopt;
  auto value = tokenizer_config->find("chat_template");
  if (value == tokenizer_config->end() || value->is_null()) return std::nullopt;
  if (auto text = template_text(*value)) return text;
  return fail(ErrorCode::corrupt, "'{}': 'chat_template' has type {} without a template named 'default'",
              (directory / "tokenizer_config.json").string(), value->type_name());
}

}  // namespace

Expected<Folder> Folder::open(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return fail(ErrorCode::not_found, "'{}' is no folder", directory.string());
  if (!file_exists(directory / "config.json")) {
    return fail(ErrorCode::not_found, "'{}' has no config.json: is it a Hugging Face checkpoint folder?",
                directory.string());
  }
  Folder folder;
  folder.path_ = directory;
  COHORT_ASSIGN(folder.config_, read_object(directory / "config.json"));
  COHORT_ASSIGN(folder.generation_config_, read_optional(directory / "generation_config.json"));
  COHORT_ASSIGN(folder.tokenizer_config_, read_optional(directory / "tokenizer_config.json"));
  COHORT_ASSIGN(folder.chat_template_, find_template(directory, folder.tokenizer_config_.get()));
  return folder;
}

bool Folder::has_tokenizer() const {
  return file_exists(path_ / "tokenizer.json");
}

Expected<json> Folder::tokenizer() const {
  return read_json_file(path_ / "tokenizer.json");
}

}  // namespace cohort::huggingface
