#include "kernels/cpu/linear_stage.h"

#include <algorithm>

namespace cohort::cpu {
namespace {

// Bytes of weights that one job reads, as in experts.cpp, and the least where reading them is what takes the time.
constexpr int64_t kJobBytes = int64_t{48} << 10, kLeastJobBytes = int64_t{16} << 10;

}  // namespace

/// Where in chunks_ the rows that enter `item` start; items with the same input share them.
size_t LinearStage::chunks_of(const LinearItem& item) {
  for (const Job& job : jobs_) {
    if (job.item->input == item.input && job.item->matrix->quantised == item.matrix->quantised) return job.chunks;
  }
  const size_t start = chunks_.size();
  for (int64_t first = 0; first < rows_; first += kChunkRows)
    values_->fill_chunk(item.input, item.matrix->quantised, first, rows_, chunks_.emplace_back());
  return start;
}

void LinearStage::begin(const Stage& stage, const StepValues& values, int64_t rows) {
  values_ = &values;
  rows_ = rows;
  jobs_.clear();
  chunks_.clear();
  const auto chunks = static_cast<int32_t>((rows + kChunkRows - 1) / kChunkRows);
  int64_t left = 0;
  for (const LinearItem& item : stage.linears) left += static_cast<int64_t>(item.matrix->bytes());
  for (const LinearItem& item : stage.linears) {
    const Matrix& m = *item.matrix;
    const size_t input = chunks_of(item);
    // A small matrix and many rows: cut the rows too.
    const int64_t pieces = (m.tiles * m.tile_bytes + kJobBytes - 1) / kJobBytes;
    const int64_t wanted = int64_t{8} * threads_;
    const auto cuts = static_cast<int32_t>(std::clamp<int64_t>((wanted + pieces - 1) / pieces, 1, chunks));
    const int64_t least = rows <= kOnePassRows ? kLeastJobBytes : 1;
    for (int64_t first = 0; first < m.tiles;) {
      // The last jobs of the list are shorter, so that all threads end together.
      const int64_t bytes = std::clamp(left / (int64_t{2} * threads_), least, kJobBytes);
      const int64_t last = std::min(first + std::clamp<int64_t>(bytes / m.tile_bytes, 1, m.tiles), m.tiles);
      for (int32_t cut = 0; cut < cuts; ++cut)
        jobs_.push_back({&item, input, first, last, chunks * cut / cuts, chunks * (cut + 1) / cuts});
      left -= (last - first) * m.tile_bytes;
      first = last;
    }
  }
}

void LinearStage::run(int64_t index) const {
  const Job& job = jobs_[static_cast<size_t>(index)];
  const Matrix& m = *job.item->matrix;
  // The job that this thread will probably take next.
  const auto following = static_cast<size_t>(index + threads_);
  const Job* after = following < jobs_.size() ? &jobs_[following] : nullptr;
  const int64_t job_rows =
      std::min<int64_t>(rows_, int64_t{job.last_chunk} * kChunkRows) - int64_t{job.first_chunk} * kChunkRows;
  const int64_t width = values_->place(job.item->output).width;
  for (int64_t tile = job.first_tile; tile < job.last_tile; ++tile) {
    const bool last = tile + 1 == job.last_tile;
    const Matrix& next_matrix = last && after != nullptr ? *after->item->matrix : m;
    const std::byte* next = !last              ? tile_address(m, 0, tile + 1)
                            : after != nullptr ? tile_address(next_matrix, 0, after->first_tile)
                                               : nullptr;
    const int64_t output = tile * m.tile_outputs;
    for (int32_t chunk = job.first_chunk; chunk < job.last_chunk; ++chunk) {
      const RowChunk& x = chunks_[job.chunks + static_cast<size_t>(chunk)];
      float* out = values_->floats(job.item->output, int64_t{chunk} * kChunkRows) + output;
      multiply_tile(linear_, m, 0, tile, x, out, width,
                    upcoming(next, next, next_matrix.tile_bytes, int64_t{chunk - job.first_chunk} * kChunkRows, x.rows,
                             job_rows));
      if (job.item->bias == nullptr) continue;
      const float* bias = job.item->bias->values.data() + output;
      for (int32_t r = 0; r < x.rows; ++r)
        elementwise_.add(out + r * width, bias, outputs_of_tile(m, tile), out + r * width);
    }
  }
}

}  // namespace cohort::cpu
