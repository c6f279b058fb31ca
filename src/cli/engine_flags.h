// Flags that every command which runs a model shares. Each is declared once: help, environment variable and value come
// from here.
#pragma once

#include "cohort/engine.h"

namespace CLI {
class App;
}

namespace cohort::cli {

/// -m, -c, -np, --threads, --isa, ... into `options`, which must live as long as the command.
void add_engine_flags(CLI::App& command, EngineOptions& options);
/// --temp, --top-k, ... into `params`.
void add_sampling_flags(CLI::App& command, SamplingParams& params);

/// Loads with a progress bar on a terminal; on failure prints the error as "cohort COMMAND: ..." and returns null.
std::unique_ptr<Engine> load_engine(const char* command, const EngineOptions& options);

}  // namespace cohort::cli
