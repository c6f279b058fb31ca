#include "kernels/cpu/mix_stage.h"

#include <algorithm>
#include <limits>

#include "quant/types.h"

namespace cohort::cpu {
namespace {

/// Columns of a job: whole blocks of every weight type. With kTokens decoded tokens 64 KB, which stay in L2.
constexpr int64_t kColumns = 256;
constexpr int64_t kTokens = 64;
/// Rows of a job: so many share what is decoded; a canvas of 256 rows still makes four jobs of each run of columns.
constexpr int32_t kRows = 64;

/// A row's place in its mixture.
struct Cursor {
  const Mixture* mixture;
  size_t next = 0;
  int64_t token() const {
    return next < mixture->tokens.size() ? mixture->tokens[next] : std::numeric_limits<int64_t>::max();
  }
};

}  // namespace

void MixStage::begin(const op::Mix& mix, const Batch& batch, float* out) {
  mix_ = mix;
  out_ = out;
  jobs_.clear();
  for (const SequenceRows& sequence : batch.sequences) {
    for (int32_t row = 0; row < sequence.rows; row += kRows) {
      for (int64_t column = 0; column < mix.table->cols; column += kColumns) {
        jobs_.push_back({&sequence, row, std::min(kRows, sequence.rows - row), column,
                         std::min(kColumns, mix.table->cols - column)});
      }
    }
  }
}

void MixStage::run(int64_t index) const {
  const Job& job = jobs_[static_cast<size_t>(index)];
  const Weight& table = *mix_.table;
  const auto out = [&](int32_t row) {
    return out_ + (job.sequence->first_row + job.first_row + row) * table.cols + job.first_column;
  };
  for (int32_t row = 0; row < job.rows; ++row) std::fill_n(out(row), job.columns, 0.0F);
  if (job.sequence->mixtures.empty()) return;

  std::vector<Cursor> cursors;
  cursors.reserve(static_cast<size_t>(job.rows));
  for (int32_t row = 0; row < job.rows; ++row)
    cursors.push_back({&job.sequence->mixtures[static_cast<size_t>(job.first_row) + static_cast<size_t>(row)]});
  const auto least = [&] { return std::ranges::min(cursors, {}, &Cursor::token).token(); };
  const size_t stride = row_bytes(table.type, table.cols), offset = row_bytes(table.type, job.first_column);
  std::vector<float> decoded(static_cast<size_t>(kTokens) * static_cast<size_t>(job.columns));
  std::vector<int32_t> local(kTokens);
  for (int64_t token = least(); token < table.rows; token = least()) {
    const int64_t first = token / kTokens * kTokens;
    bool there[kTokens] = {};
    for (int32_t row = 0; row < job.rows; ++row) {
      Cursor& cursor = cursors[static_cast<size_t>(row)];
      const size_t begin = cursor.next;
      for (; cursor.token() < first + kTokens; ++cursor.next) {
        const auto at = static_cast<size_t>(cursor.token() - first);
        local[cursor.next - begin] = static_cast<int32_t>(at);
        if (there[at]) continue;
        there[at] = true;
        decode_row(table.type, table.slices[0] + static_cast<size_t>(cursor.token()) * stride + offset,
                   decoded.data() + at * static_cast<size_t>(job.columns), job.columns);
      }
      if (cursor.next == begin) continue;
      kernels_.mix(decoded.data(), local.data(), cursor.mixture->weights.data() + begin,
                   static_cast<int64_t>(cursor.next - begin), job.columns, out(row));
    }
  }
  for (int32_t row = 0; row < job.rows; ++row) kernels_.scale(out(row), mix_.scale, job.columns, out(row));
}

}  // namespace cohort::cpu
