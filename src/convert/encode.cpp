#include "convert/encode.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/result.h"
#include "models/made_slices.h"

namespace cohort::convert_detail {
namespace {

constexpr int64_t kChunkValues = 1 << 16;  // values of one job: fits the L2 cache; low-bit encoders take 50 ms for it
constexpr int64_t kChunksPerThread = 8;    // of one batch, so that threads of different speed end together

/// Encodes consecutive output rows of a tensor.
class RowEncoder {
 public:
  explicit RowEncoder(const PlannedTensor& tensor)
      : tensor_(tensor),
        in_bytes_(row_bytes(tensor.source_type, tensor.cols)),
        out_bytes_(row_bytes(tensor.type, tensor.cols)) {}

  size_t out_bytes() const { return out_bytes_; }

  /// `out`: (end - begin) * out_bytes() bytes.
  Expected<void> encode(int64_t begin, int64_t end, std::byte* out) const {
    std::vector<float> row(static_cast<size_t>(tensor_.cols));
    for (int64_t r = begin; r < end; ++r, out += out_bytes_) {
      const std::byte* in = tensor_.slices[static_cast<size_t>(r / tensor_.rows)] +
                            in_bytes_ * static_cast<size_t>(tensor_.source_row(r % tensor_.rows));
      if (tensor_.source_type == tensor_.type) {
        std::memcpy(out, in, out_bytes_);
        continue;
      }
      decode_row(tensor_.source_type, in, row.data(), tensor_.cols);
      const float* importance =
          tensor_.importance.empty() ? nullptr : tensor_.importance[static_cast<size_t>(r / tensor_.rows)];
      auto encoded = encode_row(tensor_.type, row.data(), out, tensor_.cols, importance);
      if (!encoded)
        return fail(encoded.error().code, "tensor '{}', row {}: {}", tensor_.name, r, encoded.error().message);
    }
    return {};
  }

 private:
  const PlannedTensor& tensor_;
  size_t in_bytes_, out_bytes_;
};

/// Encodes rows [begin, end) with the whole team into `out`.
Expected<void> encode_batch(const RowEncoder& encoder, int64_t begin, int64_t end, int64_t chunk, std::byte* out,
                            ThreadTeam& team) {
  std::mutex mutex;
  std::optional<Error> first_error;
  int64_t error_row = end;
  team.run((end - begin + chunk - 1) / chunk, [&](int64_t index, int) {
    int64_t from = begin + index * chunk, to = std::min(end, from + chunk);
    auto encoded = encoder.encode(from, to, out + encoder.out_bytes() * static_cast<size_t>(from - begin));
    if (encoded) return;
    std::lock_guard lock(mutex);
    if (from < error_row)
      error_row = from, first_error = encoded.error();  // the same message whichever thread was first
  });
  if (first_error) return tl::unexpected<Error>(*first_error);
  return {};
}

}  // namespace

Expected<void> write_tensor(const PlannedTensor& tensor, gguf::Writer& writer, ThreadTeam& team,
                            const WriteHooks& hooks, ConvertProgress& progress) {
  const SliceHold hold{std::span(tensor.made)};
  std::vector<std::byte> buffer;
  RowEncoder encoder(tensor);
  int64_t chunk = std::max<int64_t>(1, kChunkValues / tensor.cols);
  int64_t batch = chunk * kChunksPerThread * team.size();
  progress.tensor = tensor.name;
  for (int64_t begin = 0; begin < tensor.total_rows(); begin += batch) {
    if (hooks.cancelled && hooks.cancelled()) {
      return fail(ErrorCode::cancelled, "interrupted after {} of {} bytes; nothing was written", progress.done_bytes,
                  progress.total_bytes);
    }
    int64_t end = std::min(tensor.total_rows(), begin + batch);
    buffer.resize(encoder.out_bytes() * static_cast<size_t>(end - begin));
    COHORT_TRY(encode_batch(encoder, begin, end, chunk, buffer.data(), team));
    COHORT_TRY(writer.write(buffer));
    progress.done_bytes += buffer.size();
    if (hooks.progress) hooks.progress(progress);
  }
  return {};
}

Expected<void> write_tensors(const Plan& plan, gguf::Writer& writer, ThreadTeam& team, const ConvertOptions& options) {
  ConvertProgress progress;
  for (const auto& tensor : writer.tensors()) progress.total_bytes += tensor.bytes;
  for (const PlannedTensor& tensor : plan.tensors) {
    COHORT_TRY(write_tensor(tensor, writer, team, {options.progress, options.cancelled}, progress));
  }
  return {};
}

}  // namespace cohort::convert_detail
