// The AMX kernels on the processor's tile unit. Small groups of rows stay with VNNI, which is as fast while memory is
// the limit and does not have to decode weights through memory.
#include <utility>

#include "kernels/cpu/linear_amx_impl.h"

namespace cohort::cpu {
namespace {

// From so many rows on tiles win in cache (docs/perf/cpu.md).
constexpr int32_t kAmxRows = 10;

/// Two sums a block are two products of half the depth and twice the sums to store and load: VNNI is faster.
constexpr bool has_two_sums(ScaleStore scales) {
  return scales == ScaleStore::k_sixteen || scales == ScaleStore::k_pairs || scales == ScaleStore::odd_two ||
         scales == ScaleStore::e4m3_two;
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
  if constexpr (!has_two_sums(kLayoutInfo[kLayout].scales)) {
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
