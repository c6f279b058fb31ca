// Flags that every measurement of the pass over experts has.
#pragma once

#include <cstdint>
#include <string>

#include "measure/expert_lab.h"

namespace CLI {
class App;
}

namespace cohort::cli {

/// --hidden, --inter, --experts, --top-k.
void add_expert_shape_flags(CLI::App& command, ExpertShape& shape);
/// --threads, --isa, --repeats.
void add_expert_run_flags(CLI::App& command, int& threads, std::string& isa, int32_t& repeats);

}  // namespace cohort::cli
