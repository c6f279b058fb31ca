// The file that `cohort tune` writes and every start on the CPU reads: which order of work is fastest on this machine.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cohort/error.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/tuning.h"
#include "quant/types.h"

namespace cohort {

/// What a file of choices was measured on.
struct TuningKey {
  std::string processor;  // the maker's name
  Isa isa = Isa::scalar;
  int threads = 1;
};
/// This machine's.
TuningKey tuning_key(Isa isa, int threads);

struct TuningChoice {
  TensorType gate_up;
  int32_t rows;
  cpu::ExpertTuning tuning;
};

/// Where choices are kept: cohort/tuning-ISA-THREADS.json below $XDG_CACHE_HOME or ~/.cache; empty when neither is set.
std::filesystem::path tuning_path(const TuningKey& key);

/// Makes the folder, and says now whether save_tuning() could write.
Expected<void> prepare_tuning(const std::filesystem::path& path);
Expected<void> save_tuning(const std::filesystem::path& path, const TuningKey& key,
                           const std::vector<TuningChoice>& choices);

/// Errors: not_found (no such file, or a key in it), corrupt when it is damaged, of another version, or measured on
/// another machine.
Expected<cpu::TuningTable> load_tuning(const std::filesystem::path& path, const TuningKey& key);

/// The table for a start: what is saved, or the defaults; a file that cannot be used is reported and ignored.
cpu::TuningTable saved_tuning(Isa isa, int threads);

}  // namespace cohort
