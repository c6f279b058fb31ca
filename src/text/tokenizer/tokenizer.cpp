#include "text/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "base/result.h"
#include "text/tokenizer/tokenizer_parts.h"

namespace cohort::text {
namespace {

/// One encode() call: its text, its buffers and its result.
class Encoding {
 public:
  Encoding(const TokenizerParts& parts, const EncodeOptions& options, std::string_view text)
      : parts_(parts), options_(options), text_(text), scratch_(parts.limits, text.size()) {
    scratch_.has_additions = has_unicode_additions(text);
  }

  Expected<std::vector<int32_t>> run() {
    if (options_.add_special) {
      ids_ = parts_.prefix;
    }
    std::vector<Segment> segments;
    parts_.added.split_raw(text_, options_.parse_special, options_.literal, segments);
    for (const Segment& segment : segments) {
      if (segment.id >= 0) {
        ids_.push_back(segment.id);
      } else {
        COHORT_TRY(raw_texts(segment.text));
      }
    }
    if (options_.add_special) {
      ids_.insert(ids_.end(), parts_.suffix.begin(), parts_.suffix.end());
    }
    return std::move(ids_);
  }

 private:
  /// Text between the special tokens. Where some are found only after normalization, which moves positions, it is cut
  /// behind the first character of those that are literal: then none of the parts spells them.
  Expected<void> raw_texts(std::string_view text) {
    if (parts_.added.special_normalized()) {
      const auto begin = static_cast<size_t>(text.data() - text_.data());
      size_t done = 0;
      for (const size_t literal : options_.literal) {
        if (literal < begin + done || literal >= begin + text.size()) {
          continue;
        }
        uint32_t size = 0;
        decode_valid_utf8(text_.data() + literal, size);
        const size_t end = literal + size - begin;
        COHORT_TRY(raw_text(text.substr(done, end - done), begin + done == 0));
        done = end;
      }
      text.remove_prefix(done);
    }
    if (text.empty()) {
      return {};
    }
    return raw_text(text, text.data() == text_.data());
  }

  Expected<void> raw_text(std::string_view text, bool first) {
    std::string normalized;
    if (!parts_.normalizer.empty()) {
      normalized = text;
      COHORT_TRY(parts_.normalizer.apply(normalized, parts_.limits, scratch_));
      text = normalized;
    }
    std::vector<Segment> segments;
    parts_.added.split_normalized(text, options_.parse_special, segments);
    for (const Segment& segment : segments) {
      if (segment.id >= 0) {
        ids_.push_back(segment.id);
      } else {
        COHORT_TRY(plain_text({segment.text, first && segment.text.data() == text.data()}));
      }
    }
    return {};
  }

  Expected<void> plain_text(Piece text) {
    pieces_.clear();
    storage_.clear();
    COHORT_TRY(parts_.pre_tokenizer.apply(text, pieces_, storage_, scratch_));
    for (const Piece& piece : pieces_) {
      COHORT_TRY(parts_.model->encode(piece.text, model_scratch_, ids_));
    }
    return {};
  }

  const TokenizerParts& parts_;
  EncodeOptions options_;
  std::string_view text_;
  MatchScratch scratch_;
  ModelScratch model_scratch_;
  std::vector<Piece> pieces_;
  std::deque<std::string> storage_;
  std::vector<int32_t> ids_;
};

bool in_vocabulary(const TokenizerParts& parts, int32_t id) {
  return id >= 0 && static_cast<size_t>(id) < parts.vocabulary->size();
}

}  // namespace

Expected<std::vector<int32_t>> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > parts_->limits.text_bytes) {
    return fail(ErrorCode::capacity, "a text of {} bytes; the tokenizer takes up to {} at once", text.size(),
                parts_->limits.text_bytes);
  }
  std::string repaired;
  if (!is_valid_utf8(text)) {
    if (!options.literal.empty()) {
      return fail(ErrorCode::invalid_argument, "a text with literal positions is not valid UTF-8");
    }
    repaired = repair_utf8(text);
    text = repaired;
  }
  return Encoding(*parts_, options, text).run();
}

Expected<std::string> Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, {.skip_special = skip_special});
  std::string out;
  for (const int32_t id : ids) {
    if (!in_vocabulary(*parts_, id)) {
      return fail(ErrorCode::invalid_argument, "token id {} is outside of the vocabulary: ids run from 0 to {}", id,
                  static_cast<int64_t>(vocab_size()) - 1);
    }
    out += detokenizer.push(id);
  }
  out += detokenizer.finish();
  return out;
}

std::vector<size_t> Tokenizer::special_places(std::string_view text) const {
  return parts_->added.special_places(text);
}

size_t Tokenizer::vocab_size() const {
  return parts_->vocabulary->size();
}

std::string_view Tokenizer::piece(int32_t id) const {
  return in_vocabulary(*parts_, id) ? parts_->decoder.piece(id) : std::string_view();
}

std::string_view Tokenizer::token_text(int32_t id) const {
  return in_vocabulary(*parts_, id) ? parts_->vocabulary->text(id) : std::string_view();
}

std::optional<int32_t> Tokenizer::token_id(std::string_view text) const {
  return parts_->vocabulary->find(text);
}

std::optional<int32_t> Tokenizer::bos_id() const {
  return parts_->bos;
}
std::optional<int32_t> Tokenizer::eos_id() const {
  return parts_->eos;
}
std::optional<int32_t> Tokenizer::pad_id() const {
  return parts_->pad;
}
std::optional<int32_t> Tokenizer::unk_id() const {
  return parts_->unk;
}
std::span<const int32_t> Tokenizer::prefix() const {
  return parts_->prefix;
}
std::span<const int32_t> Tokenizer::suffix() const {
  return parts_->suffix;
}

bool Tokenizer::is_special(int32_t id) const {
  return in_vocabulary(*parts_, id) && parts_->special[static_cast<size_t>(id)];
}

std::span<const int32_t> Tokenizer::end_ids() const {
  return parts_->ends;
}

bool Tokenizer::is_end(int32_t id) const {
  return std::binary_search(parts_->ends.begin(), parts_->ends.end(), id);
}

std::string Tokenizer::description() const {
  return fmt::format("{}, {} tokens", parts_->kind, vocab_size());
}

Detokenizer::Detokenizer(Tokenizer tokenizer, const Options& options)
    : tokenizer_(std::move(tokenizer)), options_(options), first_(options.at_start) {
  strip_left_ = first_ ? tokenizer_.parts_->decoder.config().strip_left : 0;
}

std::string Detokenizer::push(int32_t id) {
  std::string out;
  const TokenizerParts& parts = *tokenizer_.parts_;
  if (!in_vocabulary(parts, id) || !parts.vocabulary->has(id) ||
      (options_.skip_special && parts.special[static_cast<size_t>(id)])) {
    return out;
  }
  const DecoderConfig& config = parts.decoder.config();
  std::string first;
  std::string_view bytes = parts.decoder.piece(id);
  if (first_) {
    first = parts.decoder.first_piece(id);
    bytes = first;
  } else if (config.join_with_spaces) {
    stream_.push(" ", out);
  }
  first_ = false;
  const size_t size = config.strip_character.size();
  while (strip_left_ > 0 && !bytes.empty()) {
    if (bytes.substr(0, size) != config.strip_character) {
      strip_left_ = 0;
      break;
    }
    bytes.remove_prefix(size);
    --strip_left_;
  }
  stream_.push(bytes, out);
  return out;
}

std::string Detokenizer::finish() {
  std::string out;
  stream_.finish(out);
  first_ = true;
  strip_left_ = tokenizer_.parts_->decoder.config().strip_left;
  return out;
}

bool is_end_name(std::string_view text) {
  // Gathered from the published templates and configurations of the families named.
  static constexpr std::string_view kNames[] = {
      "<|im_end|>",             // ChatML: Qwen, Yi, ...
      "<|eot_id|>",             // Llama 3
      "<|eom_id|>",             // Llama 3, before a tool's answer
      "<|eot|>",                // Llama 4
      "<|eom|>",                // Llama 4
      "<|end|>",                // Phi; part of a message in gpt-oss, see find_end_ids
      "<|return|>",             // gpt-oss
      "<|call|>",               // gpt-oss
      "<|calls|>",              // Solar Open
      "<|flush|>",              // Solar Open
      "<end_of_turn>",          // Gemma 2, 3
      "<turn|>",                // Gemma 4
      "<|tool_response>",       // Gemma 4
      "<|endoftext|>",          // GPT-2, Qwen
      "<|end_of_text|>",        // Llama 3 base, Granite
      "<｜end▁of▁sentence｜>",  // DeepSeek
      "<end_of_utterance>",     // SmolVLM
      "<|fim_pad|>",            // Qwen Coder: what follows belongs to another file
      "<|repo_name|>",
      "<|file_sep|>",
      "[e~[",  // MiniMax M2
  };
  return std::find(std::begin(kNames), std::end(kNames), text) != std::end(kNames);
}

std::vector<int32_t> find_end_ids(const Vocabulary& vocabulary, const std::vector<bool>& added,
                                  const std::vector<int32_t>& known) {
  // Names that other vocabularies use for plain text ("</s>" closes a strike-out in HTML): only if they are added
  // tokens.
  static constexpr std::string_view kAmbiguous[] = {"<eos>", "[EOS]", "[EOT]", "<EOT>", "_<EOT>"};
  std::vector<int32_t> ends;
  for (const int32_t id : known) {
    if (vocabulary.has(id)) {
      ends.push_back(id);
    }
  }
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const std::string_view text = vocabulary.text(static_cast<int32_t>(i));
    const bool ambiguous = std::find(std::begin(kAmbiguous), std::end(kAmbiguous), text) != std::end(kAmbiguous);
    if (is_end_name(text) || (ambiguous && added[i])) {
      ends.push_back(static_cast<int32_t>(i));
    }
  }
  // gpt-oss ends a turn with <|return|> or <|call|>; its <|end|> only separates the messages of one turn.
  const auto end = vocabulary.find("<|end|>");
  const bool harmony = vocabulary.find("<|return|>") && vocabulary.find("<|call|>");
  const bool solar = vocabulary.find("<|calls|>") && vocabulary.find("<|flush|>");
  if (end && (harmony || solar)) {
    ends.erase(std::remove(ends.begin(), ends.end(), *end), ends.end());
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

}  // namespace cohort::text
