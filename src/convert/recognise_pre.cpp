// GGUF files do not hold the pre-tokenizer's patterns but a name for them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "convert/token_list.h"
#include "text/tokenizer/pre_types.h"

namespace cohort::convert_detail {
namespace {

using nlohmann::json;

/// What distinguishes the families: patterns in order, NFC, and whether whole words skip the merges.
struct Traits {
  std::vector<std::string> patterns;
  bool nfc = false;
  bool ignore_merges = false;
};

bool flag(const json& component, const char* key, bool fallback) {
  auto found = component.find(key);
  return found != component.end() && found->is_boolean() ? found->get<bool>() : fallback;
}

/// Appends the patterns of one component; unsupported kinds make the whole unrecognisable.
Expected<void> add_patterns(const json& component, std::vector<std::string>& patterns) {
  std::string type = component.is_object() ? component.value("type", json()).dump() : "";
  if (type == "\"Sequence\"") {
    for (const json& child : component.value("pretokenizers", json::array())) COHORT_TRY(add_patterns(child, patterns));
    return {};
  }
  if (type == "\"ByteLevel\"") {
    // Its own pattern is GPT-2's.
    if (flag(component, "use_regex", true)) patterns.emplace_back(text::find_pre_type("gpt-2")->patterns.front());
    return {};
  }
  if (type == "\"Digits\"" && flag(component, "individual_digits", false)) {
    patterns.emplace_back(R"(\p{N})");
    return {};
  }
  if (type == "\"Split\"") {
    json pattern = component.value("pattern", json::object());
    if (pattern.is_object() && pattern.contains("Regex") && pattern["Regex"].is_string()) {
      patterns.push_back(pattern["Regex"].get<std::string>());
      return {};
    }
  }
  return fail(ErrorCode::unsupported,
              "tokenizer.json: pre-tokenizer {} has no name in GGUF files; name one with --pre: {}",
              type.empty() ? "of unknown form" : type, text::known_pre_names());
}

Expected<Traits> traits_of(const json& tokenizer) {
  Traits traits;
  auto pre = tokenizer.find("pre_tokenizer");
  if (pre != tokenizer.end() && !pre->is_null()) COHORT_TRY(add_patterns(*pre, traits.patterns));
  traits.nfc = find_component(tokenizer, "normalizer", "NFC") != nullptr;
  traits.ignore_merges = flag(tokenizer["model"], "ignore_merges", false);
  return traits;
}

}  // namespace

// A Llama 3 tokenizer.json without ignore_merges becomes "dbrx", not "llama-bpe": GGUF programs let llama-bpe skip the
// merges for whole words of the vocabulary, which such a file does not ask for; dbrx is the same pattern without it.
// What else a name implies (a first token) is written to keys of its own.
Expected<std::string> recognise_pre(const json& tokenizer) {
  COHORT_ASSIGN(Traits traits, traits_of(tokenizer));
  std::string near;  // same patterns, another flag
  for (const text::PreType& type : text::pre_types()) {
    if (type.sentencepiece_bpe ||
        !std::equal(type.patterns.begin(), type.patterns.end(), traits.patterns.begin(), traits.patterns.end())) {
      continue;
    }
    if (type.nfc == traits.nfc && type.ignore_merges == traits.ignore_merges) return std::string(type.names.front());
    near += (near.empty() ? "" : ", ") + std::string(type.names.front());
  }
  std::string patterns;
  for (const std::string& pattern : traits.patterns) patterns += (patterns.empty() ? "" : "  then  ") + pattern;
  return fail(ErrorCode::unsupported,
              "tokenizer.json: no GGUF name is known for the pre-tokenizer {} (NFC {}, ignore_merges {}){}; name one "
              "with --pre: {}",
              patterns.empty() ? "without patterns" : patterns, traits.nfc, traits.ignore_merges,
              near.empty() ? "" : "; the same patterns with other flags have: " + near, text::known_pre_names());
}

}  // namespace cohort::convert_detail
