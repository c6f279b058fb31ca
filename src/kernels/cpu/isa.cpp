#include "kernels/cpu/isa.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/result.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace cohort {
namespace {

constexpr std::array<Isa, 5> kAll = {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx, Isa::neon};

#if defined(__x86_64__)
struct Leaf {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

Leaf leaf(uint32_t number, uint32_t sub = 0) {
  Leaf l;
  __get_cpuid_count(number, sub, &l.a, &l.b, &l.c, &l.d);  // leaves zeros when the leaf does not exist
  return l;
}

/// The register states that the operating system saves (XCR0).
uint64_t saved_states() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

constexpr bool has(uint32_t word, std::initializer_list<int> bits) {
  return std::all_of(bits.begin(), bits.end(), [word](int bit) { return ((word >> bit) & 1U) != 0; });
}

/// Linux hands out the 8 KB of tile state only on request.
bool permit_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::vector<Isa> detect() {
  std::vector<Isa> found = {Isa::scalar};
  const Leaf one = leaf(1);
  if (!has(one.c, {12 /* fma */, 27 /* osxsave */, 28 /* avx */, 29 /* f16c */})) return found;
  const Leaf seven = leaf(7);
  const uint64_t states = saved_states();
  constexpr uint64_t kAvxStates = 0x6, kAvx512States = 0xe6, kTileStates = 0x60000;
  if ((states & kAvxStates) != kAvxStates || !has(seven.b, {5 /* avx2 */, 8 /* bmi2 */})) return found;
  found.push_back(Isa::avx2);
  if ((states & kAvx512States) != kAvx512States || !has(seven.b, {16 /* f */, 17 /* dq */, 30 /* bw */, 31 /* vl */}) ||
      !has(seven.c, {11 /* vnni */}))
    return found;
  found.push_back(Isa::avx512);
  if ((states & kTileStates) == kTileStates && has(seven.c, {1 /* vbmi */, 8 /* gfni */}) &&
      has(seven.d, {24 /* amx-tile */, 25 /* amx-int8 */}) && permit_tiles())
    found.push_back(Isa::amx);
  return found;
}
#elif defined(__aarch64__)
std::vector<Isa> detect() {
  std::vector<Isa> found = {Isa::scalar};
  constexpr unsigned long kNeeded = HWCAP_ASIMDDP | HWCAP_ASIMDHP;
  if ((getauxval(AT_HWCAP) & kNeeded) == kNeeded) found.push_back(Isa::neon);
  return found;
}
#else
std::vector<Isa> detect() {
  return {Isa::scalar};
}
#endif

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::amx:
      return "amx";
    case Isa::neon:
      return "neon";
  }
  return "?";
}

bool has_avx512_vbmi() {
#if defined(__x86_64__)
  static const bool found = has_isa(Isa::avx512) && has(leaf(7).c, {1 /* vbmi */, 8 /* gfni */});
  return found;
#else
  return false;
#endif
}

const std::vector<Isa>& available_isas() {
  static const std::vector<Isa> found = detect();
  return found;
}

Isa best_isa() {
  return available_isas().back();
}

bool has_isa(Isa isa) {
  return std::ranges::find(available_isas(), isa) != available_isas().end();
}

std::string isa_list(const std::vector<Isa>& isas) {
  std::string text;
  for (Isa isa : isas) text.append(text.empty() ? "" : ", ").append(isa_name(isa));
  return text;
}

Expected<void> check_isa(Isa isa) {
  if (has_isa(isa)) return {};
  return fail(ErrorCode::unsupported, "this machine lacks the instruction set '{}'; it has {}; use --isa auto",
              isa_name(isa), isa_list(available_isas()));
}

Expected<Isa> parse_isa(std::string_view name) {
  if (name == "auto") return best_isa();
  for (Isa isa : kAll) {
    if (name != isa_name(isa)) continue;
    COHORT_TRY(check_isa(isa));
    return isa;
  }
  return fail(ErrorCode::invalid_argument, "unknown instruction set '{}'; known are auto, {}; this machine has {}",
              name, isa_list({kAll.begin(), kAll.end()}), isa_list(available_isas()));
}

}  // namespace cohort
