// Which order of work of the pass over experts is fastest on this machine, by type and number of rows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/tuning_file.h"
#include "measure/expert_lab.h"

namespace cohort {

struct TuneOptions {
  /// Types of gate, up and down to measure; empty: every quantised type.
  std::vector<std::string> types;
  /// Sizes of the experts; the types in it do not count.
  ExpertShape shape;
  Isa isa = best_isa();
  int threads = 1;
  int32_t repeats = 5;
};

struct TunedType {
  std::string type;
  TuningChoice choice;
  double seconds = 0, default_seconds = 0;  // a layer: medians
};

struct TuneReport {
  TuningKey key;
  std::vector<TunedType> types;  // one for each class of rows
  std::vector<TuningChoice> choices() const;
};

/// Every order that is tried; the first is the default.
std::vector<cpu::ExpertTuning> tuning_candidates();

/// A choice other than the default has to be 3% faster: less is noise. Errors: invalid_argument for a type that is not
/// quantised or does not fit the shape, capacity.
Expected<TuneReport> tune(const TuneOptions& options, const std::function<void(const std::string&)>& progress = {});

std::string to_markdown(const TuneReport& report);
std::string to_json(const TuneReport& report);

}  // namespace cohort
