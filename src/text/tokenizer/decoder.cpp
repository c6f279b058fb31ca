#include "text/tokenizer/decoder.h"

#include <utility>

#include "base/result.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/byte_fallback.h"

namespace cohort::text {
namespace {

constexpr size_t kMaxGrowth = 16;
constexpr size_t kMaxTotalBytes = size_t{1} << 30;

/// Stops once the result has more than `limit` bytes.
std::string replaced(std::string_view text, std::string_view from, std::string_view to, size_t limit = SIZE_MAX) {
  std::string out;
  size_t done = 0;
  for (size_t i = from.empty() ? std::string_view::npos : text.find(from);
       i != std::string_view::npos && out.size() <= limit; i = text.find(from, done)) {
    out.append(text.substr(done, i - done)).append(to);
    done = i + from.size();
  }
  out.append(text.substr(done));
  return out;
}

/// Applies one step; true if the token is finished.
struct Step {
  std::string& text;
  bool added;
  size_t limit;

  bool operator()(const detoken::Replace& step) const {
    text = replaced(text, step.from, step.to, limit);
    return false;
  }
  bool operator()(const detoken::Strip& step) const {
    std::string_view rest = text;
    const size_t size = step.character.size();
    for (size_t i = 0; i < step.left && rest.substr(0, size) == step.character; ++i) {
      rest.remove_prefix(size);
    }
    for (size_t i = 0; i < step.right && rest.size() >= size && rest.substr(rest.size() - size) == step.character;
         ++i) {
      rest.remove_suffix(size);
    }
    text = std::string(rest);
    return false;
  }
  bool operator()(const detoken::ByteFallback&) const {
    const int byte = byte_of_token(text);
    if (byte < 0) {
      return false;
    }
    text.assign(1, static_cast<char>(byte));
    return true;
  }
  bool operator()(const detoken::ByteAlphabet&) const {
    std::string decoded;
    if (!added && append_alphabet_bytes(decoded, text)) {
      text = std::move(decoded);
    }
    return true;
  }
};

}  // namespace

Expected<TokenDecoder> TokenDecoder::create(std::shared_ptr<const Vocabulary> vocabulary, DecoderConfig config,
                                            std::vector<bool> added, const TokenizerLimits& limits) {
  TokenDecoder decoder;
  decoder.vocabulary_ = std::move(vocabulary);
  decoder.config_ = std::move(config);
  decoder.added_ = std::move(added);
  decoder.added_.resize(decoder.vocabulary_->size());
  decoder.max_bytes_ = kMaxGrowth * limits.token_bytes;
  size_t total = 0;
  for (size_t i = 0; i < decoder.vocabulary_->size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (decoder.vocabulary_->has(id)) {
      COHORT_ASSIGN(const std::string piece, decoder.bytes(decoder.vocabulary_->text(id), decoder.added_[i]));
      total += piece.size();
      if (total > kMaxTotalBytes) {
        return fail(ErrorCode::capacity, "the decoder makes more than {} bytes of the vocabulary", kMaxTotalBytes);
      }
      decoder.pieces_.set(id, piece);
    }
  }
  decoder.pieces_.resize(decoder.vocabulary_->size());
  return decoder;
}

std::string TokenDecoder::first_piece(int32_t id) const {
  if (config_.dropped_in_first.empty()) {
    return std::string(piece(id));
  }
  return bytes(replaced(vocabulary_->text(id), config_.dropped_in_first, ""), added_[static_cast<size_t>(id)])
      .value_or(std::string(piece(id)));
}

Expected<std::string> TokenDecoder::bytes(std::string_view text, bool added) const {
  std::string out(text);
  for (const auto& step : config_.steps) {
    if (std::visit(Step{out, added, max_bytes_}, step)) {
      break;
    }
    if (out.size() > max_bytes_) {
      return fail(ErrorCode::capacity, "the decoder makes a token grow to more than {} bytes", max_bytes_);
    }
  }
  return out;
}

}  // namespace cohort::text
