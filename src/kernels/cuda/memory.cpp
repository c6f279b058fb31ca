#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/memory.h"

#include <algorithm>
#include <cstring>

#include "base/result.h"

namespace cohort::cuda {

Expected<void> check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  const ErrorCode code = error == cudaErrorMemoryAllocation ? ErrorCode::capacity : ErrorCode::unsupported;
  return fail(code, "CUDA: {}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

void DeviceMemory::clear() {
  for (void* block : blocks_) cudaFree(block);
  blocks_.clear();
  bytes_ = allocations_ = 0;
}

Expected<void*> DeviceMemory::allocate(size_t bytes, const char* what) {
  if (dry_) {
    bytes_ += bytes;
    ++allocations_;
    return reinterpret_cast<void*>(bytes_);  // distinct, and never read
  }
  void* block = nullptr;
  const cudaError_t error = cudaMalloc(&block, std::max<size_t>(bytes, 256));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return fail(
        ErrorCode::capacity,
        "the device has too little memory for {}: {:.2f} GB more are needed, {:.2f} of {:.2f} GB are free; use a "
        "smaller quantisation, a shorter context or the CPU",
        what, static_cast<double>(bytes) / 1e9, static_cast<double>(free) / 1e9, static_cast<double>(total) / 1e9);
  }
  COHORT_TRY(check(error, what));
  blocks_.push_back(block);
  bytes_ += bytes;
  ++allocations_;
  return block;
}

Expected<void*> DeviceMemory::allocate_zeros(size_t bytes, const char* what) {
  COHORT_ASSIGN(void* block, allocate(bytes, what));
  if (!dry_) COHORT_TRY(check(cudaMemset(block, 0, bytes), what));
  return block;
}

Expected<std::unique_ptr<Uploader>> Uploader::create(DeviceMemory& memory, int threads, double total_bytes,
                                                     std::function<void(double)> progress) {
  std::unique_ptr<Uploader> uploader(new Uploader(memory, threads));
  uploader->total_ = std::max(total_bytes, 1.0);
  uploader->progress_ = std::move(progress);
  if (memory.dry()) return uploader;
  COHORT_TRY(check(cudaStreamCreateWithFlags(&uploader->stream_, cudaStreamNonBlocking), "a stream for the weights"));
  for (int i = 0; i < 2; ++i) {
    void* buffer = nullptr;
    COHORT_TRY(check(cudaMallocHost(&buffer, kBufferBytes), "pinned memory for the weights"));
    uploader->buffers_[i] = static_cast<std::byte*>(buffer);
    COHORT_TRY(check(cudaEventCreateWithFlags(&uploader->sent_[i], cudaEventDisableTiming), "an event"));
  }
  return uploader;
}

Uploader::~Uploader() {
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  for (int i = 0; i < 2; ++i) {
    if (buffers_[i] != nullptr) cudaFreeHost(buffers_[i]);
    if (sent_[i] != nullptr) cudaEventDestroy(sent_[i]);
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

Expected<std::byte*> Uploader::upload(int64_t count, size_t item_bytes,
                                      const std::function<void(int64_t, std::byte*)>& fill, const char* what) {
  COHORT_ASSIGN(void* memory, memory_.allocate(static_cast<size_t>(count) * item_bytes, what));
  auto* target = static_cast<std::byte*>(memory);
  if (memory_.dry()) return target;
  const auto at_once = static_cast<int64_t>(kBufferBytes / item_bytes);
  if (at_once == 0) return fail(ErrorCode::unsupported, "CUDA: one row or tile of {} has {} bytes", what, item_bytes);
  for (int64_t begin = 0; begin < count; begin += at_once) {
    const int64_t n = std::min(at_once, count - begin);
    COHORT_TRY(check(cudaEventSynchronize(sent_[next_]), what));
    std::byte* buffer = buffers_[next_];
    team_.run(n, [&](int64_t i, int) { fill(begin + i, buffer + static_cast<size_t>(i) * item_bytes); });
    const size_t bytes = static_cast<size_t>(n) * item_bytes;
    COHORT_TRY(check(cudaMemcpyAsync(target + static_cast<size_t>(begin) * item_bytes, buffer, bytes,
                                     cudaMemcpyHostToDevice, stream_),
                     what));
    COHORT_TRY(check(cudaEventRecord(sent_[next_], stream_), what));
    next_ ^= 1;
    done_ += static_cast<double>(bytes);
    if (progress_) progress_(std::min(1.0, done_ / total_));
  }
  return target;
}

Expected<float*> Uploader::upload(const std::vector<float>& values, const char* what) {
  constexpr int64_t kPiece = 4096;
  const auto count = (static_cast<int64_t>(values.size()) + kPiece - 1) / kPiece;
  COHORT_ASSIGN(std::byte * memory, upload(
                                        count, kPiece * sizeof(float),
                                        [&](int64_t i, std::byte* out) {
                                          const size_t begin = static_cast<size_t>(i * kPiece);
                                          const size_t n = std::min<size_t>(kPiece, values.size() - begin);
                                          std::memcpy(out, values.data() + begin, n * sizeof(float));
                                        },
                                        what));
  return reinterpret_cast<float*>(memory);
}

Expected<void> Uploader::finish() {
  if (memory_.dry()) return {};
  COHORT_TRY(check(cudaStreamSynchronize(stream_), "uploading the weights"));
  if (progress_) progress_(1.0);
  return {};
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
