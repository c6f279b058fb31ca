// cohort profile: where the time of steps goes.
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
#include "measure/profile.h"
#include "models/model.h"

namespace cohort::cli {
namespace {

struct Arguments {
  ProfileOptions profile;
  std::string output = "md";
};

int run(Arguments& a) {
  const EngineOptions& engine = a.profile.engine;
  if (const auto checked = check_options(engine); !checked) return failed("profile", checked.error());
  const auto isa = parse_isa(engine.isa);
  if (!isa) return failed("profile", isa.error());
  // Probing the machine takes seconds: a model that cannot be read is said before.
  if (const auto model = Model::load(engine.model); !model) return failed("profile", model.error());
  if (!engine.device.starts_with("cuda")) {  // a device measures its own memory
    const auto probes = probe_machine(engine.threads > 0 ? engine.threads : default_threads());
    if (!probes) return failed("profile", fmt::format("cannot measure the machine: {}", probes.error().message));
    a.profile.bandwidth = probes->read_all * 1e9;
    a.profile.float_peak = probes->fma_all * 1e9;
    for (const Probes::IntPeak& peak : probes->int8) {
      if (peak.isa <= *isa) a.profile.int8_peak = std::max(a.profile.int8_peak, peak.all * 1e12);
    }
  }
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const auto report = profile_steps(a.profile, [&](const std::string& line) {
    fmt::print(stderr, "{}{}{}", terminal ? "\r\033[K" : "", line, terminal ? "" : "\n");
  });
  if (terminal) fmt::print(stderr, "\r\033[K");
  if (!report) return failed("profile", report.error());
  fmt::print("{}", a.output == "json"   ? to_json(*report)
                   : a.output == "html" ? to_html(*report)
                                        : to_markdown(*report));
  return 0;
}

}  // namespace

void add_profile_command(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("profile", "Where the time of steps goes, by operation and layer, and what bounds it");
  add_engine_flags(*command, a->profile.engine);
  command->remove_option(command->get_option("--streams"));  // --batch says how many
  command->add_option("-B,--batch", a->profile.streams, "Numbers of streams, separated by commas")
      ->delimiter(',')
      ->check(whole_number(1, kMaxStreams))
      ->type_name("N,N,...")
      ->capture_default_str();
  command->add_option("--npp", a->profile.prompt_tokens, "Prompt tokens of each stream (also -npp)")
      ->check(whole_number(1, 1 << 24))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--ntg", a->profile.steps, "Decode steps (also -ntg)")
      ->check(whole_number(1, 1 << 24))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("-r,--repeats", a->profile.repeats, "Repeats; the median counts")
      ->check(whole_number(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("-o,--output", a->output, "md, json or html")
      ->check(one_of({"md", "json", "html"}))
      ->capture_default_str();
  command->callback([a, &exit_code] { exit_code = run(*a); });
}

}  // namespace cohort::cli
