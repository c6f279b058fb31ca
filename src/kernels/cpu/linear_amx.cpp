// The AMX kernels on the processor's tile unit, for the formats and numbers of rows where they win. A block of 32
// values with scales of its own leaves the tile unit one product of half its depth, whose weights and sums go through
// memory: VNNI, which keeps both in registers, is faster but where it decodes slowly (docs/perf/cpu.md).
#include <utility>

#include "kernels/cpu/linear_amx_impl.h"

namespace cohort::cpu {
namespace {

// From so many rows on tiles win for code books, which VNNI decodes to memory for more than eight rows, too.
constexpr int32_t kAmxRows = 14;

/// Code books with one sum a block. (Two are two products of half the depth and twice the sums to store and load.)
constexpr bool on_tiles(int layout) {
  return layout >= kFirstGrid && kLayoutInfo[layout].scales == ScaleStore::odd_one;
}

/// Inline assembly instead of the intrinsics, whose GCC 12 versions do not tell the compiler that they touch memory.
struct TileUnit {
  static COHORT_INLINE void configure(const TileConfig& config) {
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  static COHORT_INLINE void release() { asm volatile("tilerelease" : : : "memory"); }
  template <int kTile>
  static COHORT_INLINE void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static COHORT_INLINE void load(const void* p, int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(p), "r"(stride) : "memory");
  }
  template <int kTile>
  static COHORT_INLINE void store(void* p, int64_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(kTile), "r"(p), "r"(stride) : "memory");
  }
  /// sums += a * b, both int8.
  template <int kTo, int kA, int kB>
  static COHORT_INLINE void multiply() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kTo), "i"(kA), "i"(kB));
  }
};

template <int kLayout>
void tile(const TileCall& call) {
  if constexpr (on_tiles(kLayout)) {
    if (call.x->rows >= kAmxRows) return kAmxTiles<TileUnit>[kLayout](call);
  }
  kAvx512Kernels.tile[kLayout](call);
}

template <int... kLayout>
constexpr LinearKernels make_kernels(std::integer_sequence<int, kLayout...>) {
  return {{tile<kLayout>...},
          [](const FloatCall& call) { kAvx512Kernels.float_rows(call); },
          [](const float* x, int64_t blocks, const ActivationChunk& chunk, int32_t row) {
            kAvx512Kernels.quantise(x, blocks, chunk, row);
          },
          [](const CombineCall& call) { kAvx512Kernels.combine(call); },
          [](const std::byte* from, int64_t blocks, float* out) { kAvx512Kernels.decode_fp8(from, blocks, out); }};
}

}  // namespace

constinit const LinearKernels kAmxKernels = make_kernels(std::make_integer_sequence<int, kLayouts>());

}  // namespace cohort::cpu
