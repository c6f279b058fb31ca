// Patterns are those of the families' published tokenizer.json (or tiktoken) files; where a file has several splitters,
// they are listed in order. The names are those that converters write.
#include "text/tokenizer/pre_types.h"

#include <algorithm>

namespace cohort::text {
namespace {

#define COHORT_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define COHORT_TAIL R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define COHORT_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define COHORT_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define COHORT_KIMI_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"
#define COHORT_KIMI_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"
#define COHORT_DEEPSEEK_WORDS \
  R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)" COHORT_TAIL

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    COHORT_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" COHORT_TAIL;
constexpr std::string_view kQwen2 =
    COHORT_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" COHORT_TAIL;
constexpr std::string_view kQwen35 =
    COHORT_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" COHORT_TAIL;
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?)" COHORT_UPPER "*" COHORT_LOWER "+" COHORT_CONTRACTIONS R"(?|[^\r\n\p{L}\p{N}]?)" COHORT_UPPER
    "+" COHORT_LOWER "*" COHORT_CONTRACTIONS R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" COHORT_TAIL;
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?)" COHORT_UPPER "*" COHORT_LOWER R"(+|[^\r\n\p{L}\p{N}]?)" COHORT_UPPER "+" COHORT_LOWER
    R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" COHORT_TAIL;
constexpr std::string_view kKimi =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?)" COHORT_KIMI_UPPER "*" COHORT_KIMI_LOWER "+" COHORT_CONTRACTIONS
    R"(?|[^\r\n\p{L}\p{N}]?)" COHORT_KIMI_UPPER "+" COHORT_KIMI_LOWER "*" COHORT_CONTRACTIONS
    R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" COHORT_TAIL;
constexpr std::string_view kYoutu =
    R"([^\r\n\p{L}\p{N}]?)" COHORT_UPPER "*" COHORT_LOWER "+" COHORT_CONTRACTIONS R"(?|[^\r\n\p{L}\p{N}]?)" COHORT_UPPER
    "+" COHORT_LOWER "*" COHORT_CONTRACTIONS R"(?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" COHORT_TAIL;
// Letters of Latin, Greek, Cyrillic and a few more scripts, one by one in the file itself. clang-format would break
// these lines further every time.
// clang-format off
constexpr std::string_view kDeepSeekLetters =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-"
    "ἕἘ-"
    "Ἕἠ-"
    "ὅὈ-"
    "Ὅὐ-"
    "ὗὙὛὝὟ-\u1F7Dᾀ-ᾴᾶ-ᾼ\u1FBEῂ-ῄῆ-ῌ"
    "ῐ-\u1FD3ῖ-\u1FDBῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212A-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-"
    "ꮿﬀ-"
    "ﬆﬓ-"
    "ﬗＡ-"
    "Ｚａ-"
    "ｚ𐐀-𐑏"
    "𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
// clang-format on

const std::vector<PreType>& table() {
  static const std::vector<PreType> types = {
      {{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "jina-v2-code", "jina-v1-en",
        "roberta-bpe", "a.x-4.0", "mellum", "modern-bert", "exaone4", "jais", "trillion", "granite-docling"},
       {kGpt2}},
      {{"mpt", "olmo"}, {kGpt2}, true},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
       {R"(\p{N})", kGpt2}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
       {kLlama3},
       false,
       true,
       true},
      {{"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, {kLlama3}},
      {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2"}, {kQwen2}, true},
      {{"stablelm2", "megrez", "hunyuan", "solar-open", "grok-2"}, {kQwen2}},
      {{"qwen35"}, {kQwen35}, true},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {kGpt4o}},
      {{"granite-embed-multi-97m"}, {kGpt4o}, false, true},
      {{"tiny_aya", "cohere2moe"}, {R"(\d{1,3}(?=(?:\d{3})*\b))", kGpt4o}},
      {{"tekken"}, {kTekken}, false, true, true},
      {{"kimi-k2"}, {kKimi}},
      {{"deepseek-llm"},
       {R"([\r\n])", kDeepSeekLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", "[一-龥ࠀ-一가-퟿]+",
        R"(\p{N}+)"}},
      {{"deepseek-coder"}, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+", R"(\p{N})"}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
       {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", COHORT_DEEPSEEK_WORDS}},
      {{"youtu"},
       {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
        kYoutu},
       false,
       true},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {R"( ?[^(\s|.,!?…。，、।۔،)]+)"}},
      {{"viking"}, {R"( ?[^(\s|.,!?…。，、।۔،)]+)", R"(\p{N})"}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"},
       {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {{"seed-coder"},
       {COHORT_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|)" COHORT_TAIL}},
      {{"ufakzeka"}, {R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" COHORT_TAIL}},
      {{"laguna"}, {R"([^\n]+|[\n]+)", kQwen2}},
      {{"exaone-moe"},
       {COHORT_CONTRACTIONS
        R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {{"minicpm5"},
       {R"(\p{N}{1,3})",
        COHORT_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|)" COHORT_TAIL},
       false,
       true},
      {{"jais-2"},
       {COHORT_CONTRACTIONS
        R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|)"
        R"(\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|)"
        R"(\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"}},
      {{"superbpe"}, {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}},
      {{"gemma4"}, {}, false, false, true, false, true},
      {{"sarvam-moe"}, {}, false, false, false, false, true},
      // For files that do not name a pre-tokenizer.
      {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
  };
  return types;
}

}  // namespace

std::span<const PreType> pre_types() {
  return table();
}

const PreType* find_pre_type(std::string_view name) {
  for (const PreType& type : table()) {
    if (std::find(type.names.begin(), type.names.end(), name) != type.names.end()) {
      return &type;
    }
  }
  return nullptr;
}

std::string known_pre_names() {
  std::vector<std::string_view> names;
  for (const PreType& type : table()) {
    names.insert(names.end(), type.names.begin(), type.names.end());
  }
  std::sort(names.begin(), names.end());
  std::string out;
  for (const auto name : names) {
    out += (out.empty() ? "" : ", ") + std::string(name);
  }
  return out;
}

}  // namespace cohort::text
