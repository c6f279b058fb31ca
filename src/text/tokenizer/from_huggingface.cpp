// Tokenizers from Hugging Face's tokenizer.json, with what tokenizer_config.json and generation_config.json add to it.
#include <algorithm>
#include <charconv>
#include <exception>
#include <unordered_set>
#include <utility>

#include "base/result.h"
#include "text/tokenizer/huggingface_components.h"
#include "text/tokenizer/huggingface_file.h"
#include "text/tokenizer/json_field.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_parts.h"

namespace cohort::text {
namespace {

using nlohmann::json;

class Builder {
 public:
  Builder(HuggingFaceFile file, const json& config, const json& generation, const json& model,
          const TokenizerLimits& limits)
      : file_(std::move(file)),
        config_(config, "tokenizer_config.json"),
        generation_(generation, "generation_config.json"),
        model_(model, "config.json"),
        limits_(limits) {}

  Expected<TokenizerParts> run() {
    parts_.limits = limits_;
    COHORT_ASSIGN(parts_.normalizer, build_normalizer(field("normalizer"), limits_));
    COHORT_ASSIGN(parts_.pre_tokenizer, build_pre_tokenizer(field("pre_tokenizer"), limits_));
    COHORT_ASSIGN(DecoderConfig decoder, build_decoder(field("decoder"), limits_));
    COHORT_TRY(model());
    COHORT_TRY(added_tokens());
    COHORT_TRY(vocabulary());
    COHORT_ASSIGN(parts_.decoder, TokenDecoder::create(parts_.vocabulary, std::move(decoder), added_ids_, limits_));
    COHORT_TRY(special_ids());
    COHORT_ASSIGN(parts_.added, AddedTokens::create(std::move(added_), parts_.normalizer, limits_));
    return std::move(parts_);
  }

 private:
  const json& field(const char* name) const {
    static const json null;
    const auto it = file_.rest.find(name);
    return it == file_.rest.end() ? null : *it;
  }

  Expected<void> model() {
    const json& value = field("model");
    if (!value.is_object()) {
      return fail(ErrorCode::corrupt, "\"model\" is not a JSON object");
    }
    const JsonObject fields(value, "model");
    // Older files leave the type out.
    COHORT_ASSIGN(const std::string type, fields.get_string("type", file_.has_scores   ? "Unigram"
                                                                    : file_.has_merges ? "BPE"
                                                                                       : ""));
    if (type == "BPE") {
      return bpe(JsonObject(value, "model BPE"));
    }
    if (type == "Unigram") {
      return unigram(JsonObject(value, "model Unigram"));
    }
    return fail(ErrorCode::unsupported, "model \"{}\" is not supported; supported are BPE and Unigram",
                repair_utf8(std::string_view(type).substr(0, 80)));
  }

  Expected<void> bpe(const JsonObject& fields) {
    if (!file_.has_vocab || !file_.has_merges) {
      return wrong_field(fields, file_.has_vocab ? "merges" : "vocab", file_.has_vocab ? "a list" : "an object");
    }
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      COHORT_ASSIGN(const std::string text, fields.get_string(affix, ""));
      if (!text.empty()) {
        return fail(ErrorCode::unsupported, "model BPE with {} \"{}\" is not supported", affix,
                    repair_utf8(text.substr(0, 80)));
      }
    }
    if (const json* dropout = fields.find("dropout"); dropout != nullptr && *dropout != 0) {
      return fail(ErrorCode::unsupported, "model BPE with dropout is not supported: encoding must not be random");
    }
    COHORT_ASSIGN(Vocabulary vocabulary, Vocabulary::create(std::move(file_.vocab), limits_));
    model_vocabulary_ = std::make_shared<const Vocabulary>(std::move(vocabulary));
    BpeConfig config;
    COHORT_ASSIGN(config.ignore_merges, fields.get_bool("ignore_merges", false));
    COHORT_ASSIGN(config.byte_fallback, fields.get_bool("byte_fallback", false));
    COHORT_ASSIGN(config.fuse_unknown, fields.get_bool("fuse_unk", false));
    COHORT_ASSIGN(const std::string unknown, fields.get_string("unk_token", ""));
    if (!unknown.empty()) {
      config.unknown = model_vocabulary_->find(unknown);
    }
    parts_.unk = config.unknown;
    // Where the last step spells bytes as characters and each has a token, the model can take the bytes themselves.
    config.byte_level = parts_.pre_tokenizer.ends_with_byte_alphabet() && has_all_bytes(*model_vocabulary_);
    if (config.byte_level) {
      parts_.pre_tokenizer.remove_last();
    }
    const std::vector<bool> words(model_vocabulary_->size(), true);
    COHORT_ASSIGN(parts_.model, make_bpe(model_vocabulary_, file_.merges, config, words, limits_));
    parts_.kind = config.byte_level ? "byte-level BPE" : "BPE";
    return {};
  }

  Expected<void> unigram(const JsonObject& fields) {
    if (!file_.has_scores) {
      return wrong_field(fields, "vocab", "a list of [text, score]");
    }
    std::vector<std::pair<std::string, int32_t>> tokens;
    std::vector<double> scores;
    tokens.reserve(file_.scores.size());
    for (auto& [text, score] : file_.scores) {
      tokens.emplace_back(std::move(text), static_cast<int32_t>(tokens.size()));
      scores.push_back(score);
    }
    COHORT_ASSIGN(Vocabulary vocabulary, Vocabulary::create(std::move(tokens), limits_));
    model_vocabulary_ = std::make_shared<const Vocabulary>(std::move(vocabulary));
    UnigramConfig config;
    if (fields.find("unk_id") != nullptr) {
      COHORT_ASSIGN(const size_t id, get_count(fields, "unk_id", 0, INT32_MAX));
      if (id >= model_vocabulary_->size()) {
        return wrong_field(fields, "unk_id", "the id of a token");
      }
      config.unknown = static_cast<int32_t>(id);
    }
    COHORT_ASSIGN(config.byte_fallback, fields.get_bool("byte_fallback", false));
    parts_.unk = config.unknown;
    const std::vector<bool> usable(model_vocabulary_->size(), true);
    COHORT_ASSIGN(parts_.model, make_unigram(model_vocabulary_, std::move(scores), usable, config, limits_));
    parts_.kind = "unigram";
    return {};
  }

  /// One entry of "added_tokens"; of tokenizer_config.json's "added_tokens_decoder" with its id.
  Expected<void> add_token(const json& value, const std::string& component, std::optional<size_t> id) {
    if (!value.is_object()) {
      return fail(ErrorCode::corrupt, "{} is not a list of objects", component);
    }
    const JsonObject fields(value, component);
    AddedToken token;
    COHORT_ASSIGN(token.content, fields.get_string("content"));
    COHORT_ASSIGN(token.special, fields.get_bool("special", false));
    COHORT_ASSIGN(token.single_word, fields.get_bool("single_word", false));
    COHORT_ASSIGN(token.lstrip, fields.get_bool("lstrip", false));
    COHORT_ASSIGN(token.rstrip, fields.get_bool("rstrip", false));
    COHORT_ASSIGN(token.normalized, fields.get_bool("normalized", !token.special));
    if (!id) {
      if (fields.find("id") == nullptr) {
        return wrong_field(fields, "id", "a token id");
      }
      COHORT_ASSIGN(id, get_count(fields, "id", 0, INT32_MAX));
    }
    // What the model's vocabulary says counts: that is the id which encoding gives.
    token.id = model_vocabulary_->find(token.content).value_or(static_cast<int32_t>(*id));
    return keep(std::move(token), component);
  }

  Expected<void> keep(AddedToken token, const std::string& component) {
    if (token.content.empty() || !added_contents_.insert(token.content).second) {
      return {};
    }
    if (added_.size() >= limits_.tokens) {
      return fail(ErrorCode::capacity, "{}: more than {} added tokens", component, limits_.tokens);
    }
    added_.push_back(std::move(token));
    return {};
  }

  Expected<void> added_tokens() {
    const json& list = field("added_tokens");
    if (!list.is_null() && !list.is_array()) {
      return fail(ErrorCode::corrupt, "\"added_tokens\" is not a list");
    }
    for (const json& value : list) {
      COHORT_TRY(add_token(value, "added_tokens", std::nullopt));
    }
    if (const json* decoder = config_.find("added_tokens_decoder"); decoder != nullptr) {
      if (!decoder->is_object()) {
        return wrong_field(config_, "added_tokens_decoder", "an object");
      }
      for (const auto& [key, value] : decoder->items()) {
        size_t id = 0;
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
        if (error != std::errc() || end != key.data() + key.size() || id > INT32_MAX) {
          return wrong_field(config_, "added_tokens_decoder", "an object with token ids as keys");
        }
        COHORT_TRY(add_token(value, "tokenizer_config.json: added_tokens_decoder", id));
      }
    }
    for (const char* name :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
      COHORT_ASSIGN(const std::string content, config_token(name));
      if (const auto id = model_vocabulary_->find(content)) {
        AddedToken token;
        token.content = content;
        token.id = *id;
        token.special = true;
        COHORT_TRY(keep(std::move(token), "tokenizer_config.json"));
      }
    }
    return {};
  }

  /// "eos_token": a string, or an object with "content"; empty if there is none.
  Expected<std::string> config_token(const char* name) const {
    const json* value = config_.find(name);
    if (value != nullptr && value->is_object()) {
      return JsonObject(*value, "tokenizer_config.json: " + std::string(name)).get_string("content", "");
    }
    if (value != nullptr && !value->is_string()) {
      return wrong_field(config_, name, "a string");
    }
    return config_.get_string(name, "");
  }

  /// The model's tokens and the added ones.
  Expected<void> vocabulary() {
    std::vector<std::pair<std::string, int32_t>> tokens;
    for (const AddedToken& token : added_) {
      if (!model_vocabulary_->find(token.content)) {
        tokens.emplace_back(token.content, token.id);
      }
    }
    if (tokens.empty()) {
      parts_.vocabulary = model_vocabulary_;
    } else {
      for (size_t i = 0; i < model_vocabulary_->size(); ++i) {
        const auto id = static_cast<int32_t>(i);
        if (model_vocabulary_->has(id)) {
          tokens.emplace_back(model_vocabulary_->text(id), id);
        }
      }
      COHORT_ASSIGN(Vocabulary all, Vocabulary::create(std::move(tokens), limits_));
      parts_.vocabulary = std::make_shared<const Vocabulary>(std::move(all));
    }
    parts_.special.resize(parts_.vocabulary->size());
    added_ids_.resize(parts_.vocabulary->size());
    for (const AddedToken& token : added_) {
      parts_.special[static_cast<size_t>(token.id)] = token.special;
      added_ids_[static_cast<size_t>(token.id)] = true;
    }
    return {};
  }

  /// The ids of "eos_token_id" and its like: absent, null, one, or a list.
  Expected<std::vector<int32_t>> ids_in(const JsonObject& file, const std::string& name) const {
    std::vector<int32_t> ids;
    const json* value = file.find(name);
    if (value == nullptr) {
      return ids;
    }
    for (const json& id : value->is_array() ? *value : json::array({*value})) {
      const bool token = id.is_number_unsigned() && id.get<uint64_t>() < parts_.vocabulary->size();
      if (!token) {
        const std::string shown = id.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 80);
        return fail(ErrorCode::corrupt,
                    "{}: {} is {}; a token id from 0 to {}, or a list of them, is needed (correct the file)",
                    file.where(), name, shown, parts_.vocabulary->size() - 1);
      }
      ids.push_back(id.get<int32_t>());
    }
    return ids;
  }

  /// A special token by its text in tokenizer_config.json, else by its id in config.json or generation_config.json.
  Expected<std::optional<int32_t>> special_id(const std::string& name) const {
    COHORT_ASSIGN(const std::string content, config_token((name + "_token").c_str()));
    if (!content.empty()) {
      if (const auto id = parts_.vocabulary->find(content)) {
        return id;
      }
    }
    for (const JsonObject* file : {&model_, &generation_}) {
      COHORT_ASSIGN(const std::vector<int32_t> ids, ids_in(*file, name + "_token_id"));
      if (!ids.empty()) {
        return ids.front();
      }
    }
    return std::nullopt;
  }

  Expected<void> special_ids() {
    COHORT_ASSIGN(parts_.bos, special_id("bos"));
    COHORT_ASSIGN(parts_.eos, special_id("eos"));
    COHORT_ASSIGN(parts_.pad, special_id("pad"));
    std::vector<int32_t> ends;
    for (const JsonObject* file : {&model_, &generation_}) {
      COHORT_ASSIGN(const std::vector<int32_t> ids, ids_in(*file, "eos_token_id"));
      ends.insert(ends.end(), ids.begin(), ids.end());
    }
    if (parts_.eos) {
      ends.push_back(*parts_.eos);
    }
    parts_.ends = find_end_ids(*parts_.vocabulary, added_ids_, ends);
    COHORT_ASSIGN(PostProcessor around, build_post_processor(field("post_processor"), limits_));
    // tokenizer_config.json overrides the post-processor, as transformers has it.
    if (config_.find("add_bos_token") != nullptr || config_.find("add_eos_token") != nullptr) {
      COHORT_ASSIGN(const bool bos, config_.get_bool("add_bos_token", false));
      COHORT_ASSIGN(const bool eos, config_.get_bool("add_eos_token", false));
      around = {};
      if (bos && parts_.bos) {
        around.prefix.push_back(*parts_.bos);
      }
      if (eos && parts_.eos) {
        around.suffix.push_back(*parts_.eos);
      }
    }
    for (const auto* ids : {&around.prefix, &around.suffix}) {
      for (const int32_t id : *ids) {
        if (!parts_.vocabulary->has(id)) {
          return fail(ErrorCode::corrupt, "post_processor: id {} is no token", id);
        }
      }
    }
    parts_.prefix = std::move(around.prefix);
    parts_.suffix = std::move(around.suffix);
    return {};
  }

  HuggingFaceFile file_;
  JsonObject config_, generation_, model_;
  const TokenizerLimits& limits_;
  std::shared_ptr<const Vocabulary> model_vocabulary_;
  std::vector<AddedToken> added_;
  std::unordered_set<std::string> added_contents_;
  std::vector<bool> added_ids_;
  TokenizerParts parts_;
};

}  // namespace

Expected<Tokenizer> Tokenizer::from_huggingface(std::string_view tokenizer_json, const Companions& companions,
                                                const TokenizerLimits& limits) {
  COHORT_ASSIGN(HuggingFaceFile file, read_huggingface_file(tokenizer_json, limits));
  const auto parsed = [](std::string_view text, std::string_view name) -> Expected<json> {
    return text.empty() ? Expected<json>(json::object()) : parse_json(text, name);
  };
  COHORT_ASSIGN(const json config, parsed(companions.tokenizer_config, "tokenizer_config.json"));
  COHORT_ASSIGN(const json generation, parsed(companions.generation_config, "generation_config.json"));
  COHORT_ASSIGN(const json model, parsed(companions.model_config, "config.json"));
  try {
    auto parts = Builder(std::move(file), config, generation, model, limits).run();
    if (!parts) {
      // The companions name themselves.
      const bool named = parts.error().message.find("config.json: ") != std::string::npos;
      return fail(parts.error().code, "{}{}", named ? "" : "tokenizer.json: ", parts.error().message);
    }
    return Tokenizer(std::make_shared<const TokenizerParts>(std::move(*parts)));
  } catch (const std::exception& e) {
    return fail(ErrorCode::internal, "tokenizer.json: {}", e.what());
  }
}

}  // namespace cohort::text
