// cohort tune: measures orders of work on this machine and remembers the fastest.
#include "cli/command_tune.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "cli/expert_flags.h"
#include "cli/failure.h"
#include "cli/values.h"
#include "engine/backend_choice.h"
#include "measure/tune.h"

namespace cohort::cli {
namespace {

struct Arguments {
  TuneOptions tune;
  std::string isa = "auto", output = "md";
  bool reset = false, dry_run = false;
};

int run(Arguments& a) {
  const auto isa = parse_isa(a.isa);
  if (!isa) return failed("tune", isa.error());
  a.tune.isa = *isa;
  if (a.tune.threads == 0) a.tune.threads = default_threads();
  const std::filesystem::path path = tuning_path(tuning_key(a.tune.isa, a.tune.threads));
  if (path.empty() && !a.dry_run)
    return failed("tune", "neither XDG_CACHE_HOME nor HOME is set, so nothing can be remembered");
  if (a.reset) {
    std::error_code error;
    const bool removed = std::filesystem::remove(path, error);
    if (error) return failed("tune", fmt::format("cannot remove {}: {}", path.string(), error.message()));
    fmt::print("{} {}\n", removed ? "removed" : "there was no", path.string());
    return 0;
  }
  if (!a.dry_run) {
    if (const auto checked = prepare_tuning(path); !checked) return failed("tune", checked.error());
  }
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const auto report = tune(a.tune, [&](const std::string& line) {
    fmt::print(stderr, "{}{}{}", terminal ? "\r\033[K" : "", line, terminal ? "" : "\n");
  });
  if (terminal) fmt::print(stderr, "\r\033[K");
  if (!report) return failed("tune", report.error());
  fmt::print("{}", a.output == "json" ? to_json(*report) : to_markdown(*report));
  if (a.dry_run) return 0;
  const auto saved = save_tuning(path, report->key, report->choices());
  if (!saved) return failed("tune", saved.error());
  fmt::print(stderr, "saved to {}; every start with {} and {} threads reads it\n", path.string(),
             isa_name(report->key.isa), report->key.threads);
  return 0;
}

}  // namespace

void add_tune_command(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  TuneOptions& o = a->tune;
  o.shape.layers = 2;
  o.threads = 0;
  CLI::App* command = app.add_subcommand(
      "tune", "Measure which order of work is fastest on this machine and remember it (no result changes)");
  command->add_option("--types", o.types, "Types to measure, separated by commas (default: all)")
      ->delimiter(',')
      ->type_name("TYPE,TYPE,...");
  add_expert_shape_flags(*command, o.shape);
  command->add_option("--layers", o.shape.layers, "Layers that are walked in turn")
      ->check(whole_number(1, 4096))
      ->capture_default_str();
  add_expert_run_flags(*command, o.threads, a->isa, o.repeats);
  command->add_flag("--reset", a->reset, "Forget what was measured");
  command->add_flag("--dry-run", a->dry_run, "Measure and print only");
  command->add_option("-o,--output", a->output, "md or json")->check(one_of({"md", "json"}))->capture_default_str();
  command->callback([a, &exit_code] { exit_code = run(*a); });
}

}  // namespace cohort::cli
