// The instruction sets that kernels exist for, and which of them this machine has. Chosen at run time, once per
// backend.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"

namespace cohort {

/// avx2: AVX2, FMA, F16C, BMI2. avx512: AVX-512 F, BW, DQ, VL and VNNI. amx: avx512 and AMX tiles with int8, which the
/// operating system must also permit. neon: Armv8.2 with dot products and half floats.
enum class Isa { scalar, avx2, avx512, amx, neon };

/// "avx512".
std::string_view isa_name(Isa isa);

/// What this machine can run, slowest first; scalar is always there. Asks the operating system for the AMX tile state
/// (per process, kept for its life) when the processor has it.
const std::vector<Isa>& available_isas();

/// The fastest of available_isas().
Isa best_isa();

/// Whether code compiled for `isa` may run here.
bool has_isa(Isa isa);

/// "auto" (the fastest) or a name, case-sensitive. invalid_argument for an unknown name, unsupported for a set that
/// this machine lacks; both messages list what it has.
Expected<Isa> parse_isa(std::string_view name);

/// Whether a machine that has avx512 also permutes bytes across a register (VBMI): all but the first with VNNI.
bool has_avx512_vbmi();

/// unsupported when the machine lacks `isa`.
Expected<void> check_isa(Isa isa);

/// "scalar, avx2, avx512".
std::string isa_list(const std::vector<Isa>& isas);

}  // namespace cohort
