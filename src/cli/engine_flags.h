// Flags that every command which runs a model shares. Each is declared once: help, environment variable and value come
// from here.
#pragma once

#include <memory>
#include <string>

#include "cohort/engine.h"

namespace CLI {
class App;
}

namespace cohort::cli {

/// -m, -c, -np, --threads, --isa, ... into `options`, which must live as long as the command.
void add_engine_flags(CLI::App& command, EngineOptions& options);
/// --draft, --draft-tokens, --draft-always, for commands that generate.
void add_draft_flags(CLI::App& command, EngineOptions& options);
/// --temp, --top-k, ... into `params`.
void add_sampling_flags(CLI::App& command, SamplingParams& params);
/// --diffusion-steps, ..., for commands that generate.
void add_diffusion_flags(CLI::App& command, EngineOptions& options);
/// Of --temp, --top-k, --top-p and --min-p the first that was given; empty: none. A model of block diffusion chooses
/// its tokens by other rules.
std::string token_filter(const CLI::App& command);
/// "canvases of 256 tokens, at most 48 steps each"; empty for models that make one token after another.
std::string canvas_note(const Engine& engine);

/// What became of --kv-positions when it is no whole number of pages; else empty.
std::string kv_note(const EngineOptions& options, const Capacity& capacity);

/// Loads with a progress bar on a terminal. Notes go to stderr.
Expected<std::unique_ptr<Engine>> load_engine(const EngineOptions& options);

}  // namespace cohort::cli
