// All quantised matrices of a program, repacked once at load into one block of memory on huge pages.
#pragma once

#include <cstddef>
#include <functional>
#include <unordered_map>
#include <vector>

#include "base/thread_team.h"
#include "cohort/error.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/packed_file.h"
#include "models/made_slices.h"
#include "models/program.h"

namespace cohort::cpu {

/// A matrix ready to multiply: packed tiles when its type is quantised, else the file's own floats.
struct Matrix {
  const Weight* source = nullptr;
  PackedWeight packed;
  bool quantised = false;
  size_t row_stride = 0;      // float matrices: bytes of a row
  int32_t tile_outputs = 16;  // outputs of one tile
  int64_t tiles = 0;
  int64_t tile_bytes = 0;
  int64_t bytes() const { return tiles * tile_bytes; }  // of one expert
};

/// done and total bytes; called from the loading thread.
using PackProgress = std::function<void(uint64_t done, uint64_t total)>;

class WeightMemory {
 public:
  /// Packs every quantised matrix that the program multiplies with, on all threads of the team. Pages of a mapped file
  /// are given back to the operating system as soon as their matrix is packed, and slices that have to be made exist
  /// only meanwhile, so that about one copy is resident.
  /// With a cache, a packed file that fits is mapped instead, and nothing is packed. capacity when the packed weights
  /// do not fit into memory; what packed_file.h says when the file cannot be used or written.
  static Expected<WeightMemory> create(const Program& program, ThreadTeam& team, const PackProgress& progress,
                                       const PackedCache& cache = {});

  WeightMemory() = default;
  WeightMemory(WeightMemory&& other) noexcept;
  WeightMemory& operator=(WeightMemory&& other) noexcept;
  ~WeightMemory();

  const Matrix& matrix(const Weight* weight) const { return matrices_.at(weight); }
  /// Of packed weights, in memory or mapped.
  size_t bytes() const { return size_; }
  /// Whether they are those of a packed file.
  bool mapped() const { return !tiles_.file.bytes().empty(); }

 private:
  Expected<void> reserve(size_t total);
  void pack(const std::vector<const Weight*>& weights, ThreadTeam& team, const PackProgress& progress);
  void place(const std::vector<const Weight*>& weights, const std::byte* first);

  std::unordered_map<const Weight*, Matrix> matrices_;
  std::byte* memory_ = nullptr;  // where they were packed
  size_t size_ = 0;
  MappedTiles tiles_;             // or the file that they are mapped from
  std::vector<SliceHold> holds_;  // of what is read where the model has it: float matrices and tables of tokens
};

}  // namespace cohort::cpu
