#include "kernels/cpu/weight_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/file_maps.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/result.h"

namespace cohort::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Outputs per tile of a float matrix: few, so that a router of 128 experts still is enough jobs for many threads.
constexpr int32_t kFloatTileOutputs = 4;
// Bytes packed between two reports of progress.
constexpr int64_t kReportBytes = int64_t{64} << 20;

size_t span_of(size_t bytes) {
  return (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

std::vector<const Weight*> matrices_of(const Program& program) {
  std::vector<const Weight*> weights;
  for (const Op& op : program.ops) {
    for (const Weight* weight : cohort::matrices_of(op)) {
      if (std::ranges::find(weights, weight) == weights.end()) weights.push_back(weight);
    }
  }
  return weights;
}

}  // namespace

WeightMemory::WeightMemory(WeightMemory&& other) noexcept {
  *this = std::move(other);
}

WeightMemory& WeightMemory::operator=(WeightMemory&& other) noexcept {
  std::swap(matrices_, other.matrices_);
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  std::swap(tiles_, other.tiles_);
  std::swap(holds_, other.holds_);
  return *this;
}

WeightMemory::~WeightMemory() {
  if (memory_ != nullptr) munmap(memory_, span_of(size_));
}

Expected<WeightMemory> WeightMemory::create(const Program& program, ThreadTeam& team, const PackProgress& progress,
                                            const PackedCache& cache) {
  WeightMemory memory;
  const auto weights = matrices_of(program);
  for (const Op& op : program.ops) {
    if (const auto* embed = std::get_if<op::Embed>(&op.action)) memory.holds_.emplace_back(*embed->table);
    if (const auto* mix = std::get_if<op::Mix>(&op.action)) memory.holds_.emplace_back(*mix->table);
  }
  std::string described;  // what a packed file must have been made for
  for (const Weight* weight : weights) {
    Matrix matrix;
    matrix.source = weight;
    matrix.quantised = type_info(weight->type).quantised;
    if (matrix.quantised) {
      if (weight->cols % kBlockValues != 0) {
        return fail(ErrorCode::corrupt, "{}: rows of {} values of type {}; a quantised matrix needs a multiple of {}",
                    weight->name, weight->cols, type_info(weight->type).name, kBlockValues);
      }
      matrix.packed = plan_packing(*weight);
      matrix.tiles = matrix.packed.tiles;
      matrix.tile_bytes = matrix.packed.shape.tile_bytes;
      described += fmt::format("{} {} {}x{}x{} in {} tiles of {} of layout {}\n", weight->name,
                               type_info(weight->type).name, weight->experts, weight->rows, weight->cols, matrix.tiles,
                               matrix.tile_bytes, static_cast<int>(matrix.packed.shape.layout));
      memory.size_ += matrix.packed.bytes();
    } else {
      memory.holds_.emplace_back(*weight);  // used where it is
      matrix.row_stride = row_bytes(weight->type, weight->cols);
      matrix.tile_outputs = kFloatTileOutputs;
      matrix.tiles = (weight->rows + kFloatTileOutputs - 1) / kFloatTileOutputs;
      matrix.tile_bytes = static_cast<int64_t>(matrix.row_stride) * kFloatTileOutputs;
    }
    memory.matrices_.emplace(weight, matrix);
  }
  if (memory.size_ == 0) return memory;
  const std::string header = packed_header(cache.source, described, memory.size_);
  bool keep = cache.mode == PackedCache::Mode::write || cache.mode == PackedCache::Mode::automatic;
  if (cache.mode == PackedCache::Mode::use || cache.mode == PackedCache::Mode::automatic) {
    auto mapped = map_packed_file(cache.file, header, memory.size_).and_then([&](MappedTiles&& tiles) {
      return compare_checksums(cache.file, tiles, cache.verify_all, team).map([&] { return std::move(tiles); });
    });
    if (mapped) {
      memory.tiles_ = std::move(*mapped);
      memory.place(weights, memory.tiles_.tiles().data());
      return memory;
    }
    if (cache.mode == PackedCache::Mode::use) return tl::unexpected(mapped.error());
    if (mapped.error().code == ErrorCode::invalid_argument) {
      keep = false;  // somebody else's file
      log::warning("the packed weights are not kept for the next start: {}", mapped.error().message);
    } else if (mapped.error().code != ErrorCode::not_found) {
      log::warning("packing again: {}", mapped.error().message);
    }
  }
  COHORT_TRY(memory.reserve(memory.size_));
  memory.place(weights, memory.memory_);
  memory.pack(weights, team, progress);
  if (keep) {
    const auto wrote = write_packed_file(cache.file, header, {memory.memory_, memory.size_});
    if (!wrote && cache.mode == PackedCache::Mode::write) return tl::unexpected(wrote.error());
    if (!wrote) log::warning("the packed weights were not kept for the next start: {}", wrote.error().message);
  }
  return memory;
}

Expected<void> WeightMemory::reserve(size_t total) {
  const size_t span = span_of(total);
  if (span > available_memory()) {
    return fail(ErrorCode::capacity,
                "packing the weights needs {} of memory and {} is available; free memory or use a smaller type",
                format_bytes(static_cast<double>(span)), format_bytes(static_cast<double>(available_memory())));
  }
  // One huge page more, to start on a boundary.
  void* raw =
      mmap(nullptr, span + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return fail(ErrorCode::capacity, "cannot reserve {} for the weights: {}", format_bytes(static_cast<double>(span)),
                std::strerror(errno));
  }
  const auto address = reinterpret_cast<uintptr_t>(raw);
  const size_t before = (kHugePage - address % kHugePage) % kHugePage;
  if (before > 0) munmap(raw, before);
  memory_ = static_cast<std::byte*>(raw) + before;
  if (kHugePage > before) munmap(memory_ + span, kHugePage - before);
  madvise(memory_, span, MADV_HUGEPAGE);  // only advice: small pages cost 3 to 19% (docs/perf/cpu.md)
  return {};
}

/// The matrices lie one after another from `first` on.
void WeightMemory::place(const std::vector<const Weight*>& weights, const std::byte* first) {
  for (const Weight* weight : weights) {
    Matrix& matrix = matrices_.at(weight);
    if (!matrix.quantised) continue;
    matrix.packed.data = first;
    first += matrix.packed.bytes();
  }
}

void WeightMemory::pack(const std::vector<const Weight*>& weights, ThreadTeam& team, const PackProgress& progress) {
  const FileMaps maps;
  uint64_t done = 0;
  for (const Weight* weight : weights) {
    const Matrix& matrix = matrices_.at(weight);
    if (!matrix.quantised) continue;
    const SliceHold hold(*weight);
    const PackedWeight& packed = matrix.packed;
    const int64_t tiles = packed.experts * packed.tiles;
    const int64_t per_report = std::max<int64_t>(1, kReportBytes / packed.shape.tile_bytes);
    for (int64_t first = 0; first < tiles; first += per_report) {
      const int64_t count = std::min(per_report, tiles - first);
      team.run(count, [&](int64_t i, int) {
        const int64_t expert = (first + i) / packed.tiles, tile = (first + i) % packed.tiles;
        pack_tile(*weight, packed.shape, expert, tile, const_cast<std::byte*>(packed.tile(expert, tile)));
      });
      for (int64_t expert = first / packed.tiles; expert <= (first + count - 1) / packed.tiles; ++expert) {
        if ((expert + 1) * packed.tiles <= first + count)
          maps.release(weight->slices[static_cast<size_t>(expert)], weight->slice_bytes());
      }
      done += static_cast<uint64_t>(count * packed.shape.tile_bytes);
      if (progress) progress(done, size_);
    }
  }
}

}  // namespace cohort::cpu
