// cohort bench steps: the ladder over concurrency.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/failure.h"
#include "cli/values.h"
#include "engine/backend_choice.h"
#include "engine/limits.h"
#include "measure/machine.h"
#include "measure/steps.h"
#include "models/model.h"

namespace cohort::cli {
namespace {

struct Arguments {
  StepsOptions steps;
  std::string output = "md";
  double bandwidth = -1;  // GB/s; below 0: measured
};

int run(Arguments& a) {
  a.steps.bandwidth = std::max(a.bandwidth, 0.0) * 1e9;
  a.steps.bandwidth_given = a.bandwidth >= 0;
  // Probing the machine takes seconds: a model that cannot be read is said before.
  if (const auto model = Model::load(a.steps.engine.model); !model) return failed("bench steps", model.error());
  if (a.bandwidth < 0 && !a.steps.engine.device.starts_with("cuda")) {
    const auto probes = probe_machine(a.steps.engine.threads > 0 ? a.steps.engine.threads : default_threads());
    if (!probes) {
      return failed("bench steps",
                    fmt::format("cannot measure the memory: {} (give --bandwidth)", probes.error().message));
    }
    a.steps.bandwidth = probes->read_all * 1e9;
  }
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const auto report = bench_steps(a.steps, [&](const std::string& line) {
    fmt::print(stderr, "{}{}{}", terminal ? "\r\033[K" : "", line, terminal ? "" : "\n");
  });
  if (terminal) fmt::print(stderr, "\r\033[K");
  if (!report) return failed("bench steps", report.error());
  fmt::print("{}", a.output == "csv" ? to_csv(*report) : a.output == "json" ? to_json(*report) : to_markdown(*report));
  return 0;
}

}  // namespace

void add_bench_steps_command(CLI::App& bench, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = bench.add_subcommand("steps", "Speed of steps at each number of streams");
  add_engine_flags(*command, a->steps.engine);
  command->remove_option(command->get_option("--streams"));  // --npl says how many
  command->add_option("--npp", a->steps.prompt_tokens, "Prompt tokens of each stream (also -npp)")
      ->check(whole_number(1, 1 << 24))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--ntg", a->steps.generated_tokens, "Generated tokens of each stream (also -ntg)")
      ->check(whole_number(1, 1 << 24))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--npl", a->steps.streams, "Numbers of streams, separated by commas (also -npl)")
      ->delimiter(',')
      ->check(whole_number(1, kMaxStreams))
      ->type_name("N,N,...")
      ->capture_default_str();
  command->add_option("-r,--repeats", a->steps.repeats, "Repeats; the median counts")
      ->check(whole_number(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--bandwidth", a->bandwidth, "GB/s that the roofline refers to (default: measured now; 0: none)")
      ->type_name("GB/s")
      ->check(number(0, 1e6));
  command->add_flag("--same", a->steps.shared_tokens,
                    "Best case: all streams get the same tokens, so that they choose the same experts");
  command->add_option("-o,--output", a->output, "md, csv or json")
      ->check(one_of({"md", "csv", "json"}))
      ->capture_default_str();
  command->callback([a, &exit_code] { exit_code = run(*a); });
}

void add_bench_command(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Measure");
  bench->require_subcommand(1);
  add_bench_steps_command(*bench, exit_code);
  add_bench_serve_command(*bench, exit_code);
  add_bench_experts_command(*bench, exit_code);
}

}  // namespace cohort::cli
