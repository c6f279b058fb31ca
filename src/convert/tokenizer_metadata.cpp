#include "convert/tokenizer_metadata.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"
#include "convert/token_list.h"
#include "models/gemma_config.h"
#include "text/tokenizer/pre_types.h"

namespace cohort::convert_detail {
namespace {

using gguf::Value;
using nlohmann::json;

/// "bos_token": a string, or an object with "content".
Expected<std::optional<std::string>> special_text(const json* root, const std::string& key) {
  if (root == nullptr) return std::nullopt;
  JsonObject config(*root, "tokenizer");
  const json* value = config.find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  COHORT_ASSIGN(JsonObject object, config.get_object(key));
  COHORT_ASSIGN(std::string content, object.get_string("content"));
  return content;
}

/// The numbers of "eos_token_id": absent, one, or a list.
Expected<std::vector<int64_t>> ids_in(const json* root, const char* file, const std::string& key) {
  std::vector<int64_t> ids;
  if (root == nullptr) return ids;
  JsonObject object(*root, file);
  const json* value = object.find(key);
  if (value == nullptr) return ids;
  for (const json& item : value->is_array() ? *value : json::array({*value})) {
    if (!item.is_number_integer()) {
      return fail(ErrorCode::corrupt, "{}: '{}' has type {}; an integer or a list of them is needed", file, key,
                  value->type_name());
    }
    ids.push_back(item.get<int64_t>());
  }
  return ids;
}

constexpr const char* kGemma = "gemma4";  // the name of the tokenizer and of its pre-tokenizer

class Writer {
 public:
  Writer(const huggingface::Folder& folder, const json& tokenizer, const TokenList& list, bool gemma,
         gguf::Metadata& out, std::vector<std::string>& notes)
      : folder_(folder), tokenizer_(tokenizer), list_(list), gemma_(gemma), out_(out), notes_(notes) {}

  Expected<void> write(const std::string& pre) {
    COHORT_TRY(write_model(pre));
    COHORT_TRY(write_tokens());
    COHORT_TRY(write_special_ids());
    COHORT_TRY(write_flags());
    if (folder_.chat_template()) COHORT_TRY(out_.add("tokenizer.chat_template", Value(*folder_.chat_template())));
    return {};
  }

 private:
  Expected<void> write_model(const std::string& pre) {
    const char* model = list_.byte_level ? "gpt2" : gemma_ ? kGemma : "llama";
    COHORT_TRY(out_.add("tokenizer.ggml.model", Value(std::string(model))));
    std::string name = pre;
    if (name.empty() && !list_.byte_level && gemma_) name = kGemma;
    if (name.empty() && list_.byte_level) {
      COHORT_ASSIGN(name, recognise_pre(tokenizer_));
    }
    if (name.empty()) name = "default";
    if (text::find_pre_type(name) == nullptr) {
      return fail(ErrorCode::invalid_argument, "--pre {}: known are {}", name, text::known_pre_names());
    }
    return out_.add("tokenizer.ggml.pre", Value(name));
  }

  Expected<void> write_tokens() {
    COHORT_TRY(out_.add("tokenizer.ggml.tokens", Value(gguf::StringArray::from(list_.tokens))));
    std::vector<int32_t> kinds;
    for (TokenKind kind : list_.kinds) kinds.push_back(static_cast<int32_t>(kind));
    COHORT_TRY(out_.add("tokenizer.ggml.token_type", Value(std::move(kinds))));
    // Gemma's pieces are merged in the order of the merges, as byte-level ones are; SentencePiece's by their scores.
    if (!list_.byte_level && !gemma_) return out_.add("tokenizer.ggml.scores", Value(merge_scores(list_)));
    gguf::StringArray merges;
    for (const auto& [left, right] : list_.merges) {
      // One space divides the two, so that tokens with spaces cannot be written (the byte alphabet has none).
      if (left.find(' ') != left.npos || right.find(' ') != right.npos) {
        return fail(ErrorCode::unsupported,
                    "tokenizer.json: merge {} ('{}' and '{}') holds a space, which GGUF files cannot express",
                    merges.size(), left, right);
      }
      merges.push_back(fmt::format("{} {}", left, right));
    }
    return out_.add("tokenizer.ggml.merges", Value(std::move(merges)));
  }

  /// The id of a special token: by its text in tokenizer_config.json, else by number in config.json or
  /// generation_config.json.
  Expected<std::optional<int64_t>> special_id(const std::string& name) {
    COHORT_ASSIGN(auto text, special_text(folder_.tokenizer_config(), name + "_token"));
    if (!text && name == "unk") {
      COHORT_ASSIGN(text, special_text(&tokenizer_["model"], "unk_token"));
    }
    if (text) {
      if (auto id = list_.id_of(*text)) return id;
      notes_.push_back(fmt::format("{}_token '{}' of tokenizer_config.json is no token; left out", name, *text));
    }
    for (const auto& [root, file] : sources()) {
      COHORT_ASSIGN(auto ids, ids_in(root, file, name + "_token_id"));
      if (ids.empty()) continue;
      COHORT_TRY(check_id(ids.front(), file, name));
      return ids.front();
    }
    return std::nullopt;
  }

  std::vector<std::pair<const json*, const char*>> sources() const {
    return {{&folder_.config(), "config.json"}, {folder_.generation_config(), "generation_config.json"}};
  }

  Expected<void> check_id(int64_t id, const char* file, const std::string& name) const {
    if (id >= 0 && id < static_cast<int64_t>(list_.tokens.size())) return {};
    return fail(ErrorCode::corrupt, "{}: {}_token_id is {}; the vocabulary has {} tokens", file, name, id,
                list_.tokens.size());
  }

  Expected<void> write_special_ids() {
    constexpr std::pair<const char*, const char*> kNames[] = {
        {"bos", "bos"}, {"eos", "eos"}, {"unk", "unknown"}, {"pad", "padding"}};
    for (const auto& [name, key] : kNames) {
      COHORT_ASSIGN(auto id, special_id(name));
      if (!id) continue;
      COHORT_TRY(out_.add(fmt::format("tokenizer.ggml.{}_token_id", key), Value(static_cast<uint32_t>(*id))));
      if (std::string_view(name) == "bos") bos_ = id;
      if (std::string_view(name) == "eos") eos_ = id;
    }
    return write_other_ends();
  }

  /// Chat models end a turn with another token than a text: generation_config.json lists both.
  Expected<void> write_other_ends() {
    std::vector<int64_t> others;
    for (const auto& [root, file] : sources()) {
      COHORT_ASSIGN(auto ids, ids_in(root, file, "eos_token_id"));
      for (int64_t id : ids) {
        COHORT_TRY(check_id(id, file, "eos"));
        if (id != eos_ && std::find(others.begin(), others.end(), id) == others.end()) others.push_back(id);
      }
    }
    constexpr const char* kKeys[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < others.size(); ++i) {
      if (i < std::size(kKeys)) {
        COHORT_TRY(out_.add(kKeys[i], Value(static_cast<uint32_t>(others[i]))));
      } else {
        notes_.push_back(fmt::format("end token {} ('{}') has no key in GGUF files; left out", others[i],
                                     list_.tokens[static_cast<size_t>(others[i])]));
      }
    }
    return {};
  }

  /// Does encoding put the text's first token in front? tokenizer_config.json says so, or the post-processor does it.
  Expected<bool> adds_bos() const {
    if (folder_.tokenizer_config() != nullptr) {
      JsonObject config(*folder_.tokenizer_config(), "tokenizer_config.json");
      if (config.contains("add_bos_token")) return config.get_bool("add_bos_token");
    }
    const json* post = find_component(tokenizer_, "post_processor", "TemplateProcessing");
    if (post == nullptr || !bos_) return false;
    auto single = post->find("single");
    if (single == post->end() || !single->is_array() || single->empty()) return false;
    const json& first = single->front();
    if (!first.is_object() || !first.contains("SpecialToken")) return false;
    const json& token = first["SpecialToken"];
    return token.is_object() && token.contains("id") && token["id"] == list_.tokens[static_cast<size_t>(*bos_)];
  }

  Expected<void> write_flags() {
    COHORT_ASSIGN(bool add_bos, adds_bos());
    if (add_bos && !bos_) {
      return fail(ErrorCode::corrupt, "tokenizer_config.json: add_bos_token is true, but there is no bos_token");
    }
    COHORT_TRY(out_.add("tokenizer.ggml.add_bos_token", Value(add_bos)));
    if (folder_.tokenizer_config() != nullptr) {
      JsonObject config(*folder_.tokenizer_config(), "tokenizer_config.json");
      COHORT_ASSIGN(bool add_eos, config.get_bool("add_eos_token", false));
      if (add_eos && !eos_) {
        return fail(ErrorCode::corrupt, "tokenizer_config.json: add_eos_token is true, but there is no eos_token");
      }
      if (add_eos) COHORT_TRY(out_.add("tokenizer.ggml.add_eos_token", Value(true)));
    }
    if (list_.byte_level) return {};
    return out_.add("tokenizer.ggml.add_space_prefix", Value(prepends_space()));
  }

  /// SentencePiece's space before the first word: a Prepend normalizer, or Metaspace with a scheme.
  bool prepends_space() const {
    if (find_component(tokenizer_, "normalizer", "Prepend") != nullptr) return true;
    const json* metaspace = find_component(tokenizer_, "pre_tokenizer", "Metaspace");
    if (metaspace == nullptr) return false;
    auto scheme = metaspace->find("prepend_scheme");
    if (scheme != metaspace->end()) return *scheme != "never";
    auto prefix = metaspace->find("add_prefix_space");
    return prefix == metaspace->end() || *prefix == true;
  }

  const huggingface::Folder& folder_;
  const json& tokenizer_;
  const TokenList& list_;
  bool gemma_;
  gguf::Metadata& out_;
  std::vector<std::string>& notes_;
  std::optional<int64_t> bos_, eos_;
};

}  // namespace

Expected<void> add_tokenizer_metadata(const huggingface::Folder& folder, const ModelConfig& config,
                                      const std::string& pre, gguf::Metadata& out, std::vector<std::string>& notes) {
  COHORT_ASSIGN(json tokenizer, folder.tokenizer());
  COHORT_ASSIGN(TokenList list, read_token_list(tokenizer, config.vocabulary));
  return Writer(folder, tokenizer, list, is_gemma(config.architecture), out, notes).write(pre);
}

}  // namespace cohort::convert_detail
