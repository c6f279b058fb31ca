#include "models/made_slices.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/memory.h"
#include "base/result.h"
#include "models/weights.h"

namespace cohort {

Expected<std::shared_ptr<MadeSlices>> MadeSlices::create(int64_t count, size_t bytes, Make make) {
  constexpr size_t kLine = 64;
  const size_t stride = (bytes + kLine - 1) / kLine * kLine;
  const size_t size = std::max(kLine, stride * static_cast<size_t>(count));
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(ErrorCode::capacity, "cannot reserve {} for weights: {}", format_bytes(static_cast<double>(size)),
                std::strerror(errno));
  }
  return std::shared_ptr<MadeSlices>(new MadeSlices(static_cast<std::byte*>(memory), size, stride, std::move(make)));
}

MadeSlices::MadeSlices(std::byte* memory, size_t size, size_t stride, Make make)
    : memory_(memory), size_(size), stride_(stride), make_(std::move(make)) {}

MadeSlices::~MadeSlices() {
  munmap(memory_, size_);
}

void MadeSlices::hold() {
  const std::lock_guard lock(mutex_);
  if (holders_++ == 0) make_(memory_, stride_);
}

void MadeSlices::let_go() {
  const std::lock_guard lock(mutex_);
  if (--holders_ == 0) madvise(memory_, size_, MADV_DONTNEED);
}

SliceHold::SliceHold(const Weight& weight) : SliceHold(std::span(weight.made)) {}

SliceHold::SliceHold(std::span<const std::shared_ptr<MadeSlices>> made) : made_(made.begin(), made.end()) {
  for (const auto& slices : made_) slices->hold();
}

SliceHold::~SliceHold() {
  for (const auto& slices : made_) slices->let_go();
}

}  // namespace cohort
