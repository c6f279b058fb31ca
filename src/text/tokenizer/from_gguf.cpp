// Tokenizers from GGUF metadata. GGUF has no description of the text pipeline, only names: what each name means is
// written here.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/result.h"
#include "text/tokenizer/pre_types.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_parts.h"

namespace cohort::text {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, which SentencePiece writes for a space
constexpr std::string_view kKnownModels = "gpt2, llama, gemma4, t5";

class Builder {
 public:
  Builder(const TokenizerData& data, const TokenizerLimits& limits) : data_(data), limits_(limits) {}

  Expected<TokenizerParts> run() {
    parts_.limits = limits_;
    COHORT_TRY(tokens());
    if (data_.model == "gpt2") {
      COHORT_TRY(gpt2());
    } else if (data_.model == "gemma4") {
      COHORT_TRY(sentencepiece_bpe(*find_pre_type("gemma4")));
      add_bos_ = true;  // files exist that say otherwise, by mistake; the model was never run without
    } else if (data_.model == "llama") {
      COHORT_TRY(llama());
    } else if (data_.model == "t5") {
      COHORT_TRY(t5());
    } else {
      return fail(ErrorCode::unsupported, "tokenizer model \"{}\" (tokenizer.ggml.model); known are {}", data_.model,
                  kKnownModels);
    }
    COHORT_TRY(special_ids());
    return std::move(parts_);
  }

 private:
  TokenKind kind(size_t id) const { return kinds_[id]; }

  Expected<void> tokens() {
    const size_t count = data_.tokens.size();
    if (count == 0) {
      return fail(ErrorCode::corrupt, "the file has no tokens (tokenizer.ggml.tokens)");
    }
    if (count > limits_.tokens) {
      return fail(ErrorCode::capacity, "{} tokens; the limit is {}", count, limits_.tokens);
    }
    if (!data_.token_types.empty() && data_.token_types.size() != count) {
      return fail(ErrorCode::corrupt, "{} tokens, but {} token types (tokenizer.ggml.token_type)", count,
                  data_.token_types.size());
    }
    kinds_.assign(count, TokenKind::normal);
    std::vector<std::pair<std::string, int32_t>> list;
    list.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const int32_t type = data_.token_types.empty() ? 1 : data_.token_types[i];
      if (type < 0 || type > 6) {
        return fail(ErrorCode::corrupt, "token {} has type {}; types run from 1 to 6", i, type);
      }
      kinds_[i] = type == 0 ? TokenKind::normal : static_cast<TokenKind>(type);
      if (kinds_[i] == TokenKind::normal && is_end_name(data_.tokens[i])) {
        kinds_[i] = TokenKind::control;  // converters forget it; as plain text the token would never be parsed
      }
      if (!data_.tokens[i].empty()) {
        list.emplace_back(data_.tokens[i], static_cast<int32_t>(i));
      }
    }
    COHORT_ASSIGN(Vocabulary vocabulary, Vocabulary::create(std::move(list), limits_, count));
    parts_.vocabulary = std::make_shared<const Vocabulary>(std::move(vocabulary));
    parts_.special.resize(count);
    literal_.resize(count);
    words_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      parts_.special[i] = kind(i) == TokenKind::control || kind(i) == TokenKind::unknown;
      literal_[i] = parts_.special[i] || kind(i) == TokenKind::user_defined;
      words_[i] = kind(i) == TokenKind::normal;
    }
    return {};
  }

  /// After the normalizer is known.
  Expected<void> added_tokens() {
    std::vector<AddedToken> added;
    for (size_t i = 0; i < literal_.size(); ++i) {
      const auto id = static_cast<int32_t>(i);
      if (literal_[i] && parts_.vocabulary->has(id)) {
        AddedToken token;
        token.content = parts_.vocabulary->text(id);
        token.id = id;
        token.special = parts_.special[i];
        if (!is_valid_utf8(token.content)) {
          return fail(ErrorCode::corrupt, "token {} is not UTF-8", i);
        }
        added.push_back(std::move(token));
      }
    }
    COHORT_ASSIGN(parts_.added, AddedTokens::create(std::move(added), parts_.normalizer, limits_));
    return {};
  }

  Expected<MergeList> merges() const {
    MergeList list;
    list.reserve(data_.merges.size());
    for (size_t i = 0; i < data_.merges.size(); ++i) {
      const std::string& merge = data_.merges[i];
      const size_t space = merge.find(' ', 1);  // the left token may be a space itself
      if (space == std::string::npos || space + 1 == merge.size()) {
        return fail(ErrorCode::corrupt, "merge {} (\"{}\") is not two tokens with a space between", i,
                    repair_utf8(merge.substr(0, 80)));
      }
      list.emplace_back(merge.substr(0, space), merge.substr(space + 1));
    }
    return list;
  }

  Expected<void> gpt2() {
    std::string name = data_.pre;
    if (name.empty()) {
      log::warning(
          "the file does not name its pre-tokenizer (tokenizer.ggml.pre): using \"default\", which may cut words in "
          "other "
          "places than the model learnt");
      name = "default";
    }
    const PreType* type = find_pre_type(name);
    if (type == nullptr) {
      return fail(ErrorCode::unsupported, "pre-tokenizer \"{}\" (tokenizer.ggml.pre); known are {}", name,
                  known_pre_names());
    }
    add_bos_ = type->add_bos;
    if (type->sentencepiece_bpe) {
      return sentencepiece_bpe(*type);
    }
    if (type->nfc) {
      parts_.normalizer.add(normalize::Form{NormalForm::nfc});
    }
    if (data_.add_space_prefix.value_or(false)) {
      parts_.pre_tokenizer.add(split::PrefixSpace{});
    }
    if (type->falcon) {
      parts_.pre_tokenizer.add(split::ByClass{&is_punctuation, SplitBehavior::contiguous});
    }
    for (const auto pattern : type->patterns) {
      COHORT_ASSIGN(Pattern compiled, Pattern::compile(pattern, limits_));
      parts_.pre_tokenizer.add(split::ByPattern{std::make_shared<const Pattern>(std::move(compiled))});
      if (type->falcon && pattern == type->patterns.front()) {
        // Its numbers are cut out of the byte alphabet, where some bytes of other characters look like superscripts.
        parts_.pre_tokenizer.add(split::ByteAlphabet{});
        parts_.pre_tokenizer.add(split::ByClass{&is_numeric, SplitBehavior::contiguous});
      }
    }
    BpeConfig config;
    config.ignore_merges = type->ignore_merges;
    config.byte_level = !type->falcon && has_all_bytes(*parts_.vocabulary);
    config.unknown = data_.unk_id;
    if (!config.byte_level && !type->falcon) {
      parts_.pre_tokenizer.add(split::ByteAlphabet{});
    }
    COHORT_ASSIGN(const MergeList list, merges());
    COHORT_ASSIGN(parts_.model, make_bpe(parts_.vocabulary, list, config, words_, limits_));
    parts_.kind = "byte-level BPE, pre-tokenizer " + name;
    DecoderConfig decoder;
    decoder.steps.push_back(detoken::ByteAlphabet{});
    return finish(std::move(decoder));
  }

  /// BPE by merge ranks over characters, with U+2581 for spaces and <0xNN> tokens.
  Expected<void> sentencepiece_bpe(const PreType& type) {
    spaces(data_.add_space_prefix.value_or(false));
    BpeConfig config;
    config.byte_fallback = true;
    config.fuse_unknown = true;
    config.whole_newline_runs = true;
    config.unknown = data_.unk_id;
    COHORT_ASSIGN(const MergeList list, merges());
    COHORT_ASSIGN(parts_.model, make_bpe(parts_.vocabulary, list, config, words_, limits_));
    parts_.kind = "BPE, pre-tokenizer " + std::string(type.names.front());
    return finish(space_decoder(data_.add_space_prefix.value_or(false)));
  }

  Expected<void> llama() {
    add_bos_ = true;
    default_id(bos_, 1);
    default_id(eos_, 2);
    default_id(unk_, 0);
    const bool prefix = data_.add_space_prefix.value_or(true);
    COHORT_TRY(charsmap());
    if (data_.remove_extra_whitespaces.value_or(false)) {
      COHORT_TRY(single_spaces());
    }
    spaces(prefix);
    if (data_.scores.size() != data_.tokens.size()) {
      return fail(ErrorCode::corrupt, "{} tokens, but {} scores (tokenizer.ggml.scores)", data_.tokens.size(),
                  data_.scores.size());
    }
    COHORT_ASSIGN(parts_.model,
                  make_scored_bpe(parts_.vocabulary, data_.scores, kinds_, id_or(data_.unk_id, unk_), limits_));
    parts_.kind = "SentencePiece BPE";
    return finish(space_decoder(prefix));
  }

  Expected<void> t5() {
    add_eos_ = true;
    default_id(eos_, 1);
    default_id(unk_, 2);
    const bool prefix = data_.add_space_prefix.value_or(true);
    COHORT_TRY(charsmap());
    if (data_.remove_extra_whitespaces.value_or(false)) {
      COHORT_TRY(single_spaces());
    }
    spaces(prefix);
    std::vector<bool> usable(kinds_.size());
    bool bytes = false;
    for (size_t i = 0; i < kinds_.size(); ++i) {
      usable[i] = kind(i) == TokenKind::normal || kind(i) == TokenKind::user_defined;
      bytes = bytes || kind(i) == TokenKind::byte;
    }
    UnigramConfig config;
    config.unknown = id_or(data_.unk_id, unk_);
    config.byte_fallback = bytes;
    config.single_precision = true;
    COHORT_ASSIGN(parts_.model,
                  make_unigram(parts_.vocabulary, {data_.scores.begin(), data_.scores.end()}, usable, config, limits_));
    parts_.kind = "unigram";
    return finish(space_decoder(prefix));
  }

  Expected<void> charsmap() {
    if (!data_.precompiled_charsmap.empty()) {
      COHORT_ASSIGN(CharsMap map, CharsMap::parse(data_.precompiled_charsmap));
      parts_.normalizer.add(normalize::MapCharacters{std::make_shared<const CharsMap>(std::move(map)), false});
    }
    return {};
  }

  /// SentencePiece's remove_extra_whitespaces: no spaces at the ends, one between words.
  Expected<void> single_spaces() {
    COHORT_ASSIGN(Pattern ends, Pattern::compile("\\A +| +\\z", limits_));
    COHORT_ASSIGN(Pattern runs, Pattern::compile(" {2,}", limits_));
    parts_.normalizer.add(normalize::ReplacePattern{std::make_shared<const Pattern>(std::move(ends)), ""});
    parts_.normalizer.add(normalize::ReplacePattern{std::make_shared<const Pattern>(std::move(runs)), " "});
    return {};
  }

  void spaces(bool prefix) {
    if (prefix) {
      parts_.normalizer.add(normalize::Prepend{std::string(kSpace)});
    }
    parts_.normalizer.add(normalize::ReplaceString{" ", std::string(kSpace)});
  }

  DecoderConfig space_decoder(bool prefix) const {
    DecoderConfig decoder;
    decoder.steps.push_back(detoken::Replace{std::string(kSpace), " "});
    decoder.steps.push_back(detoken::ByteFallback{});
    decoder.strip_character = " ";
    // SentencePiece takes back the space that it put in front, and every other one where it would not have kept it.
    decoder.strip_left = data_.remove_extra_whitespaces.value_or(false) ? SIZE_MAX : prefix ? 1 : 0;
    return decoder;
  }

  Expected<void> finish(DecoderConfig decoder) {
    COHORT_TRY(added_tokens());
    COHORT_ASSIGN(parts_.decoder, TokenDecoder::create(parts_.vocabulary, std::move(decoder), literal_, limits_));
    return {};
  }

  void default_id(std::optional<int32_t>& id, int32_t value) {
    if (parts_.vocabulary->has(value)) {
      id = value;
    }
  }

  static std::optional<int32_t> id_or(std::optional<int32_t> id, std::optional<int32_t> other) {
    return id ? id : other;
  }

  Expected<void> special_ids() {
    const struct {
      std::string_view key;
      std::optional<int32_t> id;
    } ids[] = {{"bos", data_.bos_id}, {"eos", data_.eos_id},     {"eot", data_.eot_id},
               {"eom", data_.eom_id}, {"unknown", data_.unk_id}, {"padding", data_.pad_id}};
    for (const auto& [key, id] : ids) {
      if (id && !parts_.vocabulary->has(*id)) {
        return fail(ErrorCode::corrupt, "tokenizer.ggml.{}_token_id is {}, which is no token: there are {}", key, *id,
                    parts_.vocabulary->size());
      }
    }
    parts_.bos = id_or(data_.bos_id, bos_);
    parts_.eos = id_or(data_.eos_id, eos_);
    parts_.unk = id_or(data_.unk_id, unk_);
    parts_.pad = data_.pad_id;
    if (data_.model != "gemma4") {
      add_bos_ = data_.add_bos.value_or(add_bos_ && parts_.bos.has_value());
    }
    add_eos_ = data_.add_eos.value_or(add_eos_ && parts_.eos.has_value());
    if ((add_bos_ && !parts_.bos) || (add_eos_ && !parts_.eos)) {
      return fail(ErrorCode::corrupt,
                  "tokenizer.ggml.add_{0}_token is true, but there is no tokenizer.ggml.{0}_token_id",
                  add_bos_ && !parts_.bos ? "bos" : "eos");
    }
    if (add_bos_) {
      parts_.prefix.push_back(*parts_.bos);
    }
    if (add_eos_) {
      parts_.suffix.push_back(*parts_.eos);
    }
    std::vector<int32_t> ends;
    for (const auto& id : {parts_.eos, data_.eot_id, data_.eom_id}) {
      if (id) {
        ends.push_back(*id);
      }
    }
    parts_.ends = find_end_ids(*parts_.vocabulary, literal_, ends);
    return {};
  }

  const TokenizerData& data_;
  const TokenizerLimits& limits_;
  TokenizerParts parts_;
  std::vector<TokenKind> kinds_;
  std::vector<bool> literal_;               // control, unknown, user defined: the text stands for itself
  std::vector<bool> words_;                 // normal
  std::optional<int32_t> bos_, eos_, unk_;  // where the file does not say
  bool add_bos_ = false, add_eos_ = false;
};

}  // namespace

Expected<Tokenizer> Tokenizer::from_gguf(const TokenizerData& data, const TokenizerLimits& limits) {
  COHORT_ASSIGN(TokenizerParts parts, Builder(data, limits).run());
  return Tokenizer(std::make_shared<const TokenizerParts>(std::move(parts)));
}

}  // namespace cohort::text
