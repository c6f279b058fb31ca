#include "convert/token_list.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"

namespace cohort::convert_detail {
namespace {

using nlohmann::json;

constexpr std::string_view kFile = "tokenizer.json";
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, a space in SentencePiece vocabularies

bool is_byte_token(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token[5] == '>' &&
         std::isxdigit(static_cast<unsigned char>(token[3])) && std::isxdigit(static_cast<unsigned char>(token[4]));
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at; (at = text.find(from)) != text.npos; text.remove_prefix(at + from.size())) {
    out += text.substr(0, at);
    out += to;
  }
  out += text;
  return out;
}

Expected<int64_t> checked_id(const json& value, std::string_view token, int64_t vocabulary) {
  if (!value.is_number_integer()) {
    return fail(ErrorCode::corrupt, "{}: the id of token '{}' has type {}; an integer is needed", kFile,
                token.substr(0, 100), value.type_name());
  }
  bool fits = value.is_number_unsigned() ? std::in_range<int64_t>(value.get<uint64_t>()) : true;
  int64_t id = fits ? value.get<int64_t>() : -1;
  if (id < 0 || id >= vocabulary) {
    return fail(ErrorCode::corrupt, "{}: token '{}' has id {}, but the embedding has {} rows", kFile,
                token.substr(0, 100), value.dump(), vocabulary);
  }
  return id;
}

/// Puts tokens at their ids; a second token for an id is an error unless it is the same.
class Builder {
 public:
  Builder(TokenList& list, int64_t vocabulary) : list_(list), vocabulary_(vocabulary) {
    list_.tokens.resize(static_cast<size_t>(vocabulary));
    list_.kinds.assign(static_cast<size_t>(vocabulary), TokenKind::unused);
    taken_.resize(static_cast<size_t>(vocabulary));
  }

  Expected<void> add(const std::string& token, const json& id_value, TokenKind kind) {
    COHORT_ASSIGN(int64_t id, checked_id(id_value, token, vocabulary_));
    auto place = static_cast<size_t>(id);
    if (taken_[place] && list_.tokens[place] != token) {
      return fail(ErrorCode::corrupt, "{}: id {} belongs to '{}' and to '{}'", kFile, id,
                  list_.tokens[place].substr(0, 100), token.substr(0, 100));
    }
    taken_[place] = true;
    list_.tokens[place] = token;
    list_.kinds[place] = kind;
    list_.ids[token] = id;
    return {};
  }

  void fill_gaps() {
    for (size_t i = 0; i < list_.tokens.size(); ++i) {
      if (!taken_[i]) list_.tokens[i] = fmt::format("[PAD{}]", i);
    }
  }

 private:
  TokenList& list_;
  int64_t vocabulary_;
  std::vector<bool> taken_;
};

Expected<void> read_merges(const json& model, TokenList& list) {
  auto merges = model.find("merges");
  if (merges == model.end() || !merges->is_array()) {
    return fail(ErrorCode::corrupt, "{}: model.merges is missing or no array", kFile);
  }
  list.merges.reserve(merges->size());
  for (const json& merge : *merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      list.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    // The older form is one string; the left token may begin with a space.
    size_t space = merge.is_string() ? merge.get_ref<const std::string&>().find(' ', 1) : std::string::npos;
    if (space == std::string::npos) {
      return fail(ErrorCode::corrupt, "{}: merge {} is neither \"left right\" nor a pair", kFile, list.merges.size());
    }
    const auto& text = merge.get_ref<const std::string&>();
    list.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return {};
}

Expected<void> read_added_tokens(const json& tokenizer, bool byte_level, Builder& builder) {
  auto added = tokenizer.find("added_tokens");
  if (added == tokenizer.end()) return {};
  for (const json& entry : *added) {
    JsonObject token(entry, fmt::format("{}: added_tokens", kFile));
    COHORT_ASSIGN(std::string content, token.get_string("content"));
    COHORT_ASSIGN(bool special, token.get_bool("special", false));
    const json* id = token.find("id");
    if (id == nullptr) return fail(ErrorCode::corrupt, "{}: added token '{}' has no id", kFile, content.substr(0, 100));
    TokenKind kind = special ? TokenKind::control : TokenKind::user_defined;
    if (content == "<unk>" && !byte_level) kind = TokenKind::unknown;
    COHORT_TRY(builder.add(content, *id, kind));
  }
  return {};
}

}  // namespace

std::optional<int64_t> TokenList::id_of(std::string_view token) const {
  auto found = ids.find(std::string(token));
  return found == ids.end() ? std::nullopt : std::optional(found->second);
}

const json* find_component(const json& tokenizer, const char* part, std::string_view type) {
  auto root = tokenizer.find(part);
  if (root == tokenizer.end() || !root->is_object()) return nullptr;
  auto is_type = [&](const json& component) {
    auto found = component.is_object() ? component.find("type") : component.end();
    return found != component.end() && *found == type;
  };
  if (is_type(*root)) return &*root;
  for (const char* children : {"pretokenizers", "normalizers", "decoders", "processors"}) {
    auto list = root->find(children);
    if (list == root->end() || !list->is_array()) continue;
    for (const json& child : *list) {
      if (is_type(child)) return &child;
    }
  }
  return nullptr;
}

Expected<TokenList> read_token_list(const json& tokenizer, int64_t vocabulary) {
  JsonObject root(tokenizer, std::string(kFile));
  COHORT_ASSIGN(JsonObject model, root.get_object("model"));
  COHORT_ASSIGN(std::string type, model.get_string("type", "BPE"));
  if (type != "BPE") {
    return fail(ErrorCode::unsupported,
                "{}: model type '{}' cannot be converted; BPE can (byte level or with byte fallback)", kFile, type);
  }
  TokenList list;
  list.byte_level = find_component(tokenizer, "pre_tokenizer", "ByteLevel") != nullptr ||
                    find_component(tokenizer, "decoder", "ByteLevel") != nullptr;
  COHORT_ASSIGN(bool byte_fallback, model.get_bool("byte_fallback", false));
  if (!list.byte_level && !byte_fallback) {
    return fail(ErrorCode::unsupported,
                "{}: a BPE model without byte level and without byte_fallback cannot be converted", kFile);
  }
  COHORT_TRY(model.get_object("vocab"));
  Builder builder(list, vocabulary);
  const json& vocab = tokenizer["model"]["vocab"];
  list.ids.reserve(vocab.size());
  for (const auto& [token, id] : vocab.items()) {
    TokenKind kind = !list.byte_level && is_byte_token(token) ? TokenKind::byte : TokenKind::normal;
    if (!list.byte_level && token == "<unk>") kind = TokenKind::unknown;
    COHORT_TRY(builder.add(token, id, kind));
  }
  COHORT_TRY(read_added_tokens(tokenizer, list.byte_level, builder));
  builder.fill_gaps();
  if (!list.byte_level) {
    // Readers of SentencePiece vocabularies match added tokens in plain text, where a space is a space.
    for (size_t i = 0; i < list.tokens.size(); ++i) {
      if (list.kinds[i] == TokenKind::user_defined) list.tokens[i] = replace_all(list.tokens[i], kSpaceMark, " ");
    }
  }
  COHORT_TRY(read_merges(tokenizer["model"], list));
  return list;
}

std::vector<float> merge_scores(const TokenList& list) {
  // Several merges can make one token; SentencePiece knows only the token, whose first merge counts.
  std::vector<float> scores(list.tokens.size(), 0.0F);
  std::vector<bool> seen(list.tokens.size());
  float next = 0;
  for (const auto& [left, right] : list.merges) {
    auto id = list.id_of(left + right);
    if (!id || seen[static_cast<size_t>(*id)]) continue;
    seen[static_cast<size_t>(*id)] = true;
    scores[static_cast<size_t>(*id)] = -(next++);
  }
  // What no merge makes must not win over one that does.
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!seen[i] && list.kinds[i] == TokenKind::normal) scores[i] = -next;
  }
  return scores;
}

}  // namespace cohort::convert_detail
