// Weights that are made from what a checkpoint holds, and exist only while somebody reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cohort/error.h"

namespace cohort {

struct Weight;

/// Slices that are no part of a file: made when somebody holds them (SliceHold) and dropped when nobody does any more,
/// so that besides the packed weights of a backend only the matrix exists that is being packed. Their addresses never
/// change; while nobody holds them, there are zeros.
class MadeSlices {
 public:
  /// Writes all slices, `stride` bytes apart from `first`; the same bytes at every call.
  using Make = std::function<void(std::byte* first, size_t stride)>;

  /// Reserves addresses for `count` slices of `bytes` each. capacity: the system has none left.
  static Expected<std::shared_ptr<MadeSlices>> create(int64_t count, size_t bytes, Make make);
  ~MadeSlices();
  MadeSlices(const MadeSlices&) = delete;
  MadeSlices& operator=(const MadeSlices&) = delete;

  const std::byte* slice(int64_t index) const { return memory_ + static_cast<size_t>(index) * stride_; }

 private:
  friend class SliceHold;
  MadeSlices(std::byte* memory, size_t size, size_t stride, Make make);
  void hold();
  void let_go();

  std::byte* memory_;
  size_t size_, stride_;
  Make make_;
  std::mutex mutex_;
  int64_t holders_ = 0;
};

/// As long as this lives, the slices of a weight can be read. Costs nothing for weights that lie in a mapped file.
class SliceHold {
 public:
  explicit SliceHold(const Weight& weight);
  explicit SliceHold(std::span<const std::shared_ptr<MadeSlices>> made);
  ~SliceHold();
  SliceHold(SliceHold&& other) noexcept = default;
  SliceHold(const SliceHold&) = delete;
  SliceHold& operator=(const SliceHold&) = delete;
  SliceHold& operator=(SliceHold&&) = delete;

 private:
  std::vector<std::shared_ptr<MadeSlices>> made_;
};

}  // namespace cohort
