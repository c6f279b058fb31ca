// The JSON files of a Hugging Face checkpoint folder: config.json, generation_config.json, tokenizer files, chat
// template.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cohort/error.h"

namespace cohort::huggingface {

/// What a folder says about its model besides the weights. The large tokenizer.json is parsed only when asked for.
class Folder {
 public:
  /// config.json is required (not_found names it); the others may be absent. Invalid JSON is corrupt, with file and
  /// position.
  static Expected<Folder> open(const std::filesystem::path& directory);

  const std::filesystem::path& path() const { return path_; }
  const nlohmann::json& config() const { return *config_; }
  const nlohmann::json* generation_config() const { return generation_config_.get(); }  // nullptr: no such file
  const nlohmann::json* tokenizer_config() const { return tokenizer_config_.get(); }    // nullptr: no such file
  /// chat_template.jinja, else "chat_template" of tokenizer_config.json (of several named ones the "default").
  const std::optional<std::string>& chat_template() const { return chat_template_; }

  bool has_tokenizer() const;
  /// Parses tokenizer.json.
  Expected<nlohmann::json> tokenizer() const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const nlohmann::json> config_, generation_config_, tokenizer_config_;
  std::optional<std::string> chat_template_;
};

}  // namespace cohort::huggingface
