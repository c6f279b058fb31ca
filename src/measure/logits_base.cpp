#include "measure/logits_base.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "measure/token_windows.h"

namespace cohort {
namespace {

constexpr std::string_view kMagic = "_logits_";
constexpr size_t kHeaderBytes = 8 + 3 * sizeof(int32_t);
constexpr float kDepth = 16;     // nats below the largest that are kept
constexpr float kCodes = 65535;  // steps between lowest and largest
constexpr int32_t kMostContext = 1 << 26, kMostVocabulary = 1 << 26;

}  // namespace

void encode_logits_row(std::span<const float> logits, std::span<uint16_t> row) {
  const auto [smallest, largest] = std::ranges::minmax(logits);
  const float lowest = std::max(smallest, largest - kDepth);
  const auto normaliser = static_cast<float>(log_sum_exp(logits));
  const float step = (largest - lowest) / kCodes;
  const float low_log = lowest - normaliser;
  std::memcpy(row.data(), &step, sizeof step);
  std::memcpy(row.data() + 2, &low_log, sizeof low_log);
  std::ranges::fill(row.subspan(4), uint16_t{0});
  if (!(step > 0)) return;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float code = std::rint((logits[i] - lowest) / step);
    if (code > 0) row[4 + i] = static_cast<uint16_t>(std::min(code, kCodes));  // a NaN becomes 0
  }
}

Expected<LogitsBaseWriter> LogitsBaseWriter::create(const std::filesystem::path& path, int32_t context,
                                                    int32_t vocabulary, std::span<const int32_t> tokens) {
  COHORT_ASSIGN(auto file, AtomicFileWriter::create(path));
  const int32_t header[] = {context, vocabulary, static_cast<int32_t>(tokens.size()) / context};
  COHORT_TRY(file.write(std::as_bytes(std::span(kMagic))));
  COHORT_TRY(file.write(std::as_bytes(std::span(header))));
  COHORT_TRY(file.write(std::as_bytes(tokens)));
  return LogitsBaseWriter(std::move(file));
}

Expected<LogitsBase> LogitsBase::open(const std::filesystem::path& path) {
  LogitsBase base;
  COHORT_ASSIGN(base.file_, MappedFile::open(path));
  const auto bytes = base.file_.bytes();
  const std::string name = path.string();
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return fail(ErrorCode::corrupt,
                "'{}' is no file of log-probabilities: it does not begin with '{}' (write one with --save-base)", name,
                kMagic);
  }
  base.context_ = load<int32_t>(bytes.data() + 8);
  base.vocabulary_ = load<int32_t>(bytes.data() + 12);
  base.windows_ = load<int32_t>(bytes.data() + 16);
  if (base.context_ < 4 || base.context_ > kMostContext || base.vocabulary_ < 1 || base.vocabulary_ > kMostVocabulary ||
      base.windows_ < 1) {
    return fail(ErrorCode::corrupt, "'{}': {} windows of {} tokens of a vocabulary of {} cannot be", name,
                base.windows_, base.context_, base.vocabulary_);
  }
  const uint64_t tokens = static_cast<uint64_t>(base.context_) * static_cast<uint64_t>(base.windows_);
  const uint64_t rows = static_cast<uint64_t>(scored_positions(base.context_)) * static_cast<uint64_t>(base.windows_);
  const uint64_t left = bytes.size() - kHeaderBytes;
  const uint64_t row_bytes = logits_row_size(base.vocabulary_) * sizeof(uint16_t);
  if (tokens > left / sizeof(int32_t) || rows > (left - tokens * sizeof(int32_t)) / row_bytes) {
    return fail(ErrorCode::corrupt,
                "'{}' is too short: {} windows of {} tokens and a vocabulary of {} need {} bytes, "
                "it has {}",
                name, base.windows_, base.context_, base.vocabulary_,
                static_cast<double>(kHeaderBytes) + 4.0 * static_cast<double>(tokens) +
                    static_cast<double>(rows) * static_cast<double>(row_bytes),
                bytes.size());
  }
  base.tokens_ = bytes.data() + kHeaderBytes;
  base.rows_ = base.tokens_ + tokens * sizeof(int32_t);
  for (uint64_t i = 0; i < tokens; ++i) {
    const auto token = load<int32_t>(base.tokens_ + i * sizeof(int32_t));
    if (token < 0 || token >= base.vocabulary_) {
      return fail(ErrorCode::corrupt, "'{}' holds token {}; its vocabulary has {}", name, token, base.vocabulary_);
    }
  }
  return base;
}

std::vector<int32_t> LogitsBase::tokens(int32_t window) const {
  std::vector<int32_t> out(static_cast<size_t>(context_));
  std::memcpy(out.data(), tokens_ + static_cast<size_t>(window) * out.size() * sizeof(int32_t),
              out.size() * sizeof(int32_t));
  return out;
}

void LogitsBase::read(int32_t window, int32_t index, std::span<float> log_probabilities) const {
  const size_t row =
      static_cast<size_t>(window) * static_cast<size_t>(scored_positions(context_)) + static_cast<size_t>(index);
  const std::byte* at = rows_ + row * logits_row_size(vocabulary_) * sizeof(uint16_t);
  const auto step = load<float>(at);
  const auto lowest = load<float>(at + 4);
  for (size_t i = 0; i < log_probabilities.size(); ++i) {
    log_probabilities[i] = lowest + step * static_cast<float>(load<uint16_t>(at + 8 + 2 * i));
  }
}

}  // namespace cohort
