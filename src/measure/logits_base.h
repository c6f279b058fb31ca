// The file that holds a model's log-probabilities, against which another model is judged. Its format is the field's
// (llama-perplexity --kl-divergence-base): "_logits_", i32 context, i32 vocabulary, i32 windows, the tokens of all
// windows, then for every scored position (context - 1 - context / 2 of each window, from context / 2 on) f32 step, f32
// lowest, and one u16 code for each token of the vocabulary (one more where that is odd): log p = lowest + step * code.
// What is less likely than exp(-16) times the most likely token has code 0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "base/file.h"
#include "cohort/error.h"

namespace cohort {

/// First scored position of a window of `context` tokens: what comes before has too little to look back on.
constexpr int32_t first_scored_position(int32_t context) {
  return context / 2;
}
/// Scored positions of a window; the last token's successor is unknown.
constexpr int32_t scored_positions(int32_t context) {
  return context - 1 - first_scored_position(context);
}

/// u16 values of one position in the file.
constexpr size_t logits_row_size(int32_t vocabulary) {
  return 4 + (static_cast<size_t>(vocabulary) + 1) / 2 * 2;
}
/// Encodes the log-softmax of `logits` into logits_row_size(logits.size()) values.
void encode_logits_row(std::span<const float> logits, std::span<uint16_t> row);

class LogitsBaseWriter {
 public:
  /// `tokens`: context * windows of them.
  static Expected<LogitsBaseWriter> create(const std::filesystem::path& path, int32_t context, int32_t vocabulary,
                                           std::span<const int32_t> tokens);
  /// The rows of whole windows, in order.
  Expected<void> write(std::span<const uint16_t> rows) { return file_.write(std::as_bytes(rows)); }
  /// Makes the file visible.
  Expected<void> commit() { return file_.commit(); }

 private:
  explicit LogitsBaseWriter(AtomicFileWriter file) : file_(std::move(file)) {}
  AtomicFileWriter file_;
};

/// A base file that was checked completely: sizes agree, tokens lie in the vocabulary.
class LogitsBase {
 public:
  static Expected<LogitsBase> open(const std::filesystem::path& path);

  int32_t context() const { return context_; }
  int32_t vocabulary() const { return vocabulary_; }
  int32_t windows() const { return windows_; }
  std::vector<int32_t> tokens(int32_t window) const;
  /// The log-probabilities after scored position `index` (0 .. scored_positions - 1) of a window. [vocabulary]
  void read(int32_t window, int32_t index, std::span<float> log_probabilities) const;

 private:
  MappedFile file_;
  int32_t context_ = 0, vocabulary_ = 0, windows_ = 0;
  const std::byte* tokens_ = nullptr;
  const std::byte* rows_ = nullptr;
};

}  // namespace cohort
