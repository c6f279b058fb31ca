#include "text/tokenizer/huggingface_components.h"

#include <memory>
#include <optional>
#include <utility>

#include "base/result.h"
#include "text/tokenizer/json_field.h"
#include "text/tokenizer/unicode.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {
namespace {

using nlohmann::json;

// Pieces of word characters or of other visible ones (Rust's \w, whose Join_Control Oniguruma's lacks).
constexpr std::string_view kWordPieces =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";
constexpr std::string_view kGpt2Pieces =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Expected<std::string> type_of(const json& value, std::string_view component) {
  if (!value.is_object()) {
    return fail(ErrorCode::corrupt, "{} is not a JSON object", component);
  }
  return JsonObject(value, std::string(component)).get_string("type");
}

tl::unexpected<Error> unsupported(std::string_view component, std::string_view type, std::string_view known) {
  return fail(ErrorCode::unsupported, "{} \"{}\" is not supported; supported are {}", component,
              repair_utf8(type.substr(0, 80)), known);
}

Expected<void> check_steps(size_t steps, std::string_view component, const TokenizerLimits& limits) {
  if (steps > limits.steps) {
    return fail(ErrorCode::capacity, "more than {} {} steps", limits.steps, component);
  }
  return {};
}

/// Calls visit(element) for the elements of a "Sequence".
template <class Visit>
Expected<void> for_each_element(const JsonObject& fields, const char* field, Visit&& visit) {
  const json* list = fields.find(field);
  if (list == nullptr || !list->is_array()) {
    return wrong_field(fields, field, "a list");
  }
  for (const json& element : *list) {
    COHORT_TRY(visit(element));
  }
  return {};
}

/// {"String": ...} or {"Regex": ...}: exactly one of the two.
struct PatternField {
  std::optional<std::string> string;
  std::shared_ptr<const Pattern> regex;
};

Expected<PatternField> pattern_field(const JsonObject& fields, const TokenizerLimits& limits) {
  const json* pattern = fields.find("pattern");
  if (pattern == nullptr || !pattern->is_object()) {
    return wrong_field(fields, "pattern", "{\"String\": ...} or {\"Regex\": ...}");
  }
  const JsonObject inner(*pattern, fields.where());
  PatternField result;
  if (inner.find("String") != nullptr) {
    COHORT_ASSIGN(result.string, inner.get_string("String"));
    return result;
  }
  COHORT_ASSIGN(const std::string regex, inner.get_string("Regex"));
  COHORT_ASSIGN(Pattern compiled, Pattern::compile(regex, limits));
  result.regex = std::make_shared<const Pattern>(std::move(compiled));
  return result;
}

Expected<std::shared_ptr<const Pattern>> literal_pattern(std::string_view text, const TokenizerLimits& limits) {
  COHORT_ASSIGN(Pattern compiled, Pattern::literal(text, limits));
  return std::make_shared<const Pattern>(std::move(compiled));
}

/// A field of exactly one character.
Expected<std::string> character_field(const JsonObject& fields, const char* field, std::string otherwise) {
  COHORT_ASSIGN(std::string text, fields.get_string(field, std::move(otherwise)));
  if (text.empty() || decode_utf8(text).size != text.size()) {
    return wrong_field(fields, field, "one character");
  }
  return text;
}

Expected<std::string> decode_base64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') {
      break;
    }
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) {
      return fail(ErrorCode::corrupt, "normalizer Precompiled: \"precompiled_charsmap\" is not base64");
    }
    bits = (bits << 6) | static_cast<uint32_t>(value);
    if (++count == 4) {
      out += {static_cast<char>(bits >> 16), static_cast<char>(bits >> 8), static_cast<char>(bits)};
      bits = 0;
      count = 0;
    }
  }
  if (count >= 2) {
    bits <<= 6 * (4 - count);
    out += static_cast<char>(bits >> 16);
    if (count == 3) {
      out += static_cast<char>(bits >> 8);
    }
  }
  return out;
}

Expected<void> add_normalizer(const json& value, const TokenizerLimits& limits, Normalizer& out) {
  COHORT_ASSIGN(const std::string type, type_of(value, "normalizer"));
  const JsonObject fields(value, "normalizer " + type);
  if (type == "Sequence") {
    return for_each_element(fields, "normalizers", [&](const json& e) { return add_normalizer(e, limits, out); });
  }
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    const bool compatible = type.size() == 4, composed = type.back() == 'C';
    out.add(normalize::Form{compatible ? (composed ? NormalForm::nfkc : NormalForm::nfkd)
                                       : (composed ? NormalForm::nfc : NormalForm::nfd)});
  } else if (type == "Lowercase") {
    out.add(normalize::Lowercase{});
  } else if (type == "StripAccents") {
    out.add(normalize::StripAccents{});
  } else if (type == "Nmt") {
    out.add(normalize::Nmt{});
  } else if (type == "ByteLevel") {
    out.add(normalize::ByteAlphabet{});
  } else if (type == "Strip") {
    normalize::Strip strip;
    COHORT_ASSIGN(strip.left, fields.get_bool("strip_left", true));
    COHORT_ASSIGN(strip.right, fields.get_bool("strip_right", true));
    out.add(strip);
  } else if (type == "Prepend") {
    COHORT_ASSIGN(std::string text, fields.get_string("prepend"));
    out.add(normalize::Prepend{std::move(text)});
  } else if (type == "Replace") {
    COHORT_ASSIGN(PatternField pattern, pattern_field(fields, limits));
    COHORT_ASSIGN(std::string content, fields.get_string("content", ""));
    if (pattern.string && pattern.string->empty()) {  // matches between all characters
      COHORT_ASSIGN(pattern.regex, literal_pattern("", limits));
      out.add(normalize::ReplacePattern{std::move(pattern.regex), std::move(content)});
    } else if (pattern.string) {
      out.add(normalize::ReplaceString{std::move(*pattern.string), std::move(content)});
    } else {
      out.add(normalize::ReplacePattern{std::move(pattern.regex), std::move(content)});
    }
  } else if (type == "Precompiled") {
    COHORT_ASSIGN(const std::string encoded, fields.get_string("precompiled_charsmap", ""));
    COHORT_ASSIGN(const std::string blob, decode_base64(encoded));
    if (!blob.empty()) {
      COHORT_ASSIGN(CharsMap map, CharsMap::parse(blob));
      out.add(normalize::MapCharacters{std::make_shared<const CharsMap>(std::move(map)), true});
    }
  } else {
    return unsupported(
        "normalizer", type,
        "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Nmt, ByteLevel, Strip, Prepend, Replace and "
        "Precompiled");
  }
  return check_steps(out.size(), "normalizer", limits);
}

Expected<SplitBehavior> behavior_field(const JsonObject& fields, std::string otherwise) {
  COHORT_ASSIGN(const std::string name, fields.get_string("behavior", std::move(otherwise)));
  if (name == "Removed") {
    return SplitBehavior::removed;
  }
  if (name == "Isolated") {
    return SplitBehavior::isolated;
  }
  if (name == "MergedWithPrevious") {
    return SplitBehavior::merged_with_previous;
  }
  if (name == "MergedWithNext") {
    return SplitBehavior::merged_with_next;
  }
  if (name == "Contiguous") {
    return SplitBehavior::contiguous;
  }
  return wrong_field(fields, "behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

Expected<void> add_metaspace(const JsonObject& fields, PreTokenizer& out) {
  split::Metaspace metaspace;
  COHORT_ASSIGN(metaspace.replacement, character_field(fields, "replacement", "\xE2\x96\x81"));
  COHORT_ASSIGN(const bool prefix, fields.get_bool("add_prefix_space", true));  // the older way to say it
  COHORT_ASSIGN(const std::string scheme, fields.get_string("prepend_scheme", prefix ? "always" : "never"));
  if (scheme != "always" && scheme != "never" && scheme != "first") {
    return wrong_field(fields, "prepend_scheme", "always, never or first");
  }
  metaspace.prepend = scheme == "always"  ? split::Metaspace::Prepend::always
                      : scheme == "never" ? split::Metaspace::Prepend::never
                                          : split::Metaspace::Prepend::first;
  COHORT_ASSIGN(metaspace.split, fields.get_bool("split", true));
  out.add(std::move(metaspace));
  return {};
}

Expected<void> add_byte_level(const JsonObject& fields, const TokenizerLimits& limits, PreTokenizer& out) {
  COHORT_ASSIGN(const bool prefix, fields.get_bool("add_prefix_space", true));
  COHORT_ASSIGN(const bool regex, fields.get_bool("use_regex", true));
  if (prefix) {
    out.add(split::PrefixSpace{});
  }
  if (regex) {
    COHORT_ASSIGN(Pattern pattern, Pattern::compile(kGpt2Pieces, limits));
    out.add(split::ByPattern{std::make_shared<const Pattern>(std::move(pattern))});
  }
  out.add(split::ByteAlphabet{});
  return {};
}

Expected<void> add_pre_tokenizer(const json& value, const TokenizerLimits& limits, PreTokenizer& out) {
  COHORT_ASSIGN(const std::string type, type_of(value, "pre_tokenizer"));
  const JsonObject fields(value, "pre_tokenizer " + type);
  if (type == "Sequence") {
    return for_each_element(fields, "pretokenizers", [&](const json& e) { return add_pre_tokenizer(e, limits, out); });
  }
  if (type == "ByteLevel") {
    COHORT_TRY(add_byte_level(fields, limits, out));
  } else if (type == "Split") {
    COHORT_ASSIGN(PatternField pattern, pattern_field(fields, limits));
    split::ByPattern step;
    COHORT_ASSIGN(step.behavior, behavior_field(fields, "Isolated"));
    COHORT_ASSIGN(step.invert, fields.get_bool("invert", false));
    step.pattern = std::move(pattern.regex);
    if (pattern.string) {
      COHORT_ASSIGN(step.pattern, literal_pattern(*pattern.string, limits));
    }
    out.add(std::move(step));
  } else if (type == "Metaspace") {
    COHORT_TRY(add_metaspace(fields, out));
  } else if (type == "Digits") {
    COHORT_ASSIGN(const bool individual, fields.get_bool("individual_digits", false));
    out.add(split::ByClass{&is_numeric, individual ? SplitBehavior::isolated : SplitBehavior::contiguous});
  } else if (type == "Punctuation") {
    COHORT_ASSIGN(const SplitBehavior behavior, behavior_field(fields, "Isolated"));
    out.add(split::ByClass{&is_punctuation, behavior});
  } else if (type == "WhitespaceSplit") {
    out.add(split::ByClass{&is_white_space, SplitBehavior::removed});
  } else if (type == "Whitespace") {
    COHORT_ASSIGN(Pattern pattern, Pattern::compile(kWordPieces, limits));
    out.add(split::ByPattern{std::make_shared<const Pattern>(std::move(pattern)), SplitBehavior::removed, true});
  } else if (type == "CharDelimiterSplit") {
    COHORT_ASSIGN(const std::string delimiter, character_field(fields, "delimiter", ""));
    out.add(split::ByCharacter{decode_utf8(delimiter).value});
  } else if (type == "FixedLength") {
    COHORT_ASSIGN(const size_t length, get_count(fields, "length", 5, INT64_MAX));
    if (length == 0) {
      return wrong_field(fields, "length", "at least 1");
    }
    out.add(split::ByLength{length});
  } else {
    return unsupported("pre_tokenizer", type,
                       "Sequence, ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, "
                       "CharDelimiterSplit and FixedLength");
  }
  return check_steps(out.size(), "pre_tokenizer", limits);
}

/// A decoder while its steps are collected: after "Fuse", all tokens are one.
struct DecoderBuild {
  DecoderConfig config;
  bool fused = false;
  bool complete = false;  // ByteLevel: bytes, which nothing else can follow
  bool metaspace = false;
  size_t steps = 0;
};

Expected<void> add_decoder(const json& value, const TokenizerLimits& limits, DecoderBuild& out) {
  COHORT_ASSIGN(const std::string type, type_of(value, "decoder"));
  const JsonObject fields(value, "decoder " + type);
  if (type == "Sequence") {
    return for_each_element(fields, "decoders", [&](const json& e) { return add_decoder(e, limits, out); });
  }
  COHORT_TRY(check_steps(++out.steps, "decoder", limits));
  if (type == "Fuse") {
    out.fused = true;
    return {};
  }
  if (out.complete || (out.fused && type != "Strip")) {
    return fail(ErrorCode::unsupported, "decoder \"{}\" behind {} is not supported", type,
                out.complete ? "ByteLevel" : "Fuse");
  }
  auto& steps = out.config.steps;
  if (type == "ByteLevel") {
    steps.push_back(detoken::ByteAlphabet{});
    out.complete = true;
  } else if (type == "ByteFallback") {
    steps.push_back(detoken::ByteFallback{});
  } else if (type == "Replace") {
    COHORT_ASSIGN(PatternField pattern, pattern_field(fields, limits));
    COHORT_ASSIGN(std::string content, fields.get_string("content", ""));
    if (!pattern.string || pattern.string->empty()) {
      return fail(ErrorCode::unsupported, "decoder Replace is only supported with a string that is not empty");
    }
    steps.push_back(detoken::Replace{std::move(*pattern.string), std::move(content)});
  } else if (type == "Strip") {
    COHORT_ASSIGN(std::string content, character_field(fields, "content", " "));
    COHORT_ASSIGN(const size_t start, get_count(fields, "start", 0, 1024));
    COHORT_ASSIGN(const size_t stop, get_count(fields, "stop", 0, 1024));
    if (!out.fused) {
      steps.push_back(detoken::Strip{std::move(content), start, stop});
    } else if (stop > 0 || out.config.strip_left > 0) {
      return fail(ErrorCode::unsupported, "decoder Strip at the end of a text, or a second one, is not supported");
    } else {
      out.config.strip_character = std::move(content);
      out.config.strip_left = start;
    }
  } else if (type == "Metaspace") {
    COHORT_ASSIGN(std::string replacement, character_field(fields, "replacement", "\xE2\x96\x81"));
    COHORT_ASSIGN(const bool prefix, fields.get_bool("add_prefix_space", true));
    COHORT_ASSIGN(const std::string scheme, fields.get_string("prepend_scheme", prefix ? "always" : "never"));
    if (scheme != "never") {
      if (out.metaspace) {
        return fail(ErrorCode::unsupported, "two Metaspace decoders are not supported");
      }
      out.metaspace = true;
      out.config.dropped_in_first = replacement;
    }
    steps.push_back(detoken::Replace{std::move(replacement), " "});
  } else {
    return unsupported("decoder", type, "Sequence, ByteLevel, ByteFallback, Replace, Strip, Metaspace and Fuse");
  }
  return {};
}

Expected<int32_t> token_id(const json& value, const JsonObject& fields, const char* field) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT32_MAX) {
    return wrong_field(fields, field, "a token id");
  }
  return value.get<int32_t>();
}

/// {"<s>": {"ids": [1], ...}, ...}[name]
Expected<void> append_template_token(const JsonObject& fields, const std::string& name, std::vector<int32_t>& out) {
  const json* tokens = fields.find("special_tokens");
  if (tokens == nullptr || !tokens->is_object() || !tokens->contains(name) || !(*tokens)[name].is_object()) {
    return fail(ErrorCode::corrupt, "{}: \"special_tokens\" does not have \"{}\"", fields.where(), name);
  }
  const JsonObject token((*tokens)[name], fields.where());
  return for_each_element(token, "ids", [&](const json& id) -> Expected<void> {
    COHORT_ASSIGN(const int32_t value, token_id(id, token, "ids"));
    out.push_back(value);
    return {};
  });
}

Expected<void> add_template(const JsonObject& fields, PostProcessor& out) {
  PostProcessor around;
  bool text_seen = false;
  COHORT_TRY(for_each_element(fields, "single", [&](const json& part) -> Expected<void> {
    if (!part.is_object() || part.size() != 1 || !part.begin()->is_object()) {
      return wrong_field(fields, "single", "a list of SpecialToken and Sequence");
    }
    const JsonObject inner(*part.begin(), fields.where());
    COHORT_ASSIGN(const std::string id, inner.get_string("id"));
    if (part.begin().key() == "SpecialToken") {
      return append_template_token(fields, id, text_seen ? around.suffix : around.prefix);
    }
    if (part.begin().key() != "Sequence" || id != "A" || text_seen) {
      return wrong_field(fields, "single", "SpecialToken and one Sequence A");
    }
    text_seen = true;
    return {};
  }));
  if (!text_seen) {
    return wrong_field(fields, "single", "SpecialToken and one Sequence A");
  }
  // Later processors of a sequence wrap what the earlier ones made.
  out.prefix.insert(out.prefix.begin(), around.prefix.begin(), around.prefix.end());
  out.suffix.insert(out.suffix.end(), around.suffix.begin(), around.suffix.end());
  return {};
}

/// ["[CLS]", 101]
Expected<int32_t> named_id(const JsonObject& fields, const char* field) {
  const json* value = fields.find(field);
  if (value == nullptr || !value->is_array() || value->size() != 2) {
    return wrong_field(fields, field, "[text, id]");
  }
  return token_id((*value)[1], fields, field);
}

Expected<void> add_post_processor(const json& value, const TokenizerLimits& limits, PostProcessor& out) {
  COHORT_ASSIGN(const std::string type, type_of(value, "post_processor"));
  const JsonObject fields(value, "post_processor " + type);
  if (type == "Sequence") {
    return for_each_element(fields, "processors", [&](const json& e) { return add_post_processor(e, limits, out); });
  }
  if (type == "TemplateProcessing") {
    COHORT_TRY(add_template(fields, out));
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    COHORT_ASSIGN(const int32_t cls, named_id(fields, "cls"));
    COHORT_ASSIGN(const int32_t sep, named_id(fields, "sep"));
    out.prefix.insert(out.prefix.begin(), cls);
    out.suffix.push_back(sep);
  } else if (type != "ByteLevel") {  // which only concerns offsets
    return unsupported("post_processor", type,
                       "Sequence, TemplateProcessing, RobertaProcessing, BertProcessing and ByteLevel");
  }
  return check_steps(out.prefix.size() + out.suffix.size(), "post_processor", limits);
}

}  // namespace

Expected<Normalizer> build_normalizer(const json& value, const TokenizerLimits& limits) {
  Normalizer out;
  if (!value.is_null()) {
    COHORT_TRY(add_normalizer(value, limits, out));
  }
  return out;
}

Expected<PreTokenizer> build_pre_tokenizer(const json& value, const TokenizerLimits& limits) {
  PreTokenizer out;
  if (!value.is_null()) {
    COHORT_TRY(add_pre_tokenizer(value, limits, out));
  }
  return out;
}

Expected<DecoderConfig> build_decoder(const json& value, const TokenizerLimits& limits) {
  DecoderBuild out;
  if (value.is_null()) {
    out.config.join_with_spaces = true;
  } else {
    COHORT_TRY(add_decoder(value, limits, out));
  }
  return std::move(out.config);
}

Expected<PostProcessor> build_post_processor(const json& value, const TokenizerLimits& limits) {
  PostProcessor out;
  if (!value.is_null()) {
    COHORT_TRY(add_post_processor(value, limits, out));
  }
  return out;
}

}  // namespace cohort::text
