// cohort synth: random weights of a real architecture.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <thread>

#include "base/memory.h"
#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/values.h"
#include "engine/limits.h"
#include "formats/model_files.h"
#include "measure/synth.h"

namespace cohort::cli {
namespace {

int run(SynthOptions& options) {
  using Clock = std::chrono::steady_clock;
  if (const auto checked = check_output_file(options.output, {options.config}); !checked)
    return failed("synth", checked.error());
  if (options.threads == 0) options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto start = Clock::now();
  int shown = -1;
  options.progress = [&](uint64_t done, uint64_t total) {
    const auto percent = static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total));
    if (percent == shown || (!terminal && percent / 10 == shown / 10 && shown >= 0)) return;
    shown = percent;
    fmt::print(stderr, "{}{:3d}% of {}{}", terminal ? "\r" : "", percent, format_bytes(static_cast<double>(total)),
               terminal ? " " : "\n");
  };
  const auto size = synthesise(options);
  if (terminal && shown >= 0) fmt::print(stderr, "\n");
  if (!size) {
    return failed("synth", size.error());
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  fmt::print("{}: {}, {:.1f} s, {:.2f} GB/s\n", options.output.string(), format_bytes(static_cast<double>(*size)),
             seconds, 1e-9 * static_cast<double>(*size) / seconds);
  return 0;
}

}  // namespace

void add_synth_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<SynthOptions>();
  options->threads = 0;
  CLI::App* command =
      app.add_subcommand("synth", "Write a model of random weights in the shapes of a real architecture");
  command
      ->add_option("--config", options->config,
                   fmt::format("{}, or the path of a config.json", fmt::join(synth_config_names(), ", ")))
      ->check(file_or(synth_config_names()))
      ->required();
  std::vector<std::string> types;
  for (const std::string_view name : synth_type_names()) types.emplace_back(name);
  command->add_option("--type", options->type, fmt::format("{}", fmt::join(types, ", ")))
      ->check(one_of(types))
      ->required();
  command->add_option("-o,--output", options->output, "GGUF file to write")->required();
  command->add_option("--layers", options->layers, "Layers (0: as many as the model has)")
      ->type_name("N")
      ->check(whole_number(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "The same seed gives the same file")
      ->type_name("S")
      ->check(whole_number(0, INT64_MAX))
      ->capture_default_str();
  command->add_option("-t,--threads", options->threads, "Threads (0: one per core)")
      ->type_name("N")
      ->check(whole_number(0, kMaxThreads))
      ->capture_default_str();
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace cohort::cli
