// cohort doctor: what this machine is, what it can do at best, and what will be used.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/values.h"
#include "engine/limits.h"
#include "measure/machine.h"

namespace cohort::cli {
namespace {

struct Arguments {
  int threads = 0, repeats = 5;
  bool json = false;
};

int run(const Arguments& arguments) {
  const auto topology = read_topology();
  if (!topology) return failed("doctor", topology.error());
  const auto probes = probe_machine(arguments.threads == 0 ? topology->allowed : arguments.threads, arguments.repeats);
  if (!probes) return failed("doctor", probes.error());
  fmt::print("{}", arguments.json ? to_json(*topology, *probes).dump(2) + "\n" : to_text(*topology, *probes));
  return 0;
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("doctor", "Measure this machine and say what will be used");
  command->add_option("-t,--threads", arguments->threads, "Threads to measure with (0: all that may be used)")
      ->check(whole_number(0, kMaxThreads));
  command->add_option("--repeats", arguments->repeats, "Repeats of each measurement, of which the median counts")
      ->check(whole_number(1, 1000));
  command->add_flag("--json", arguments->json, "Report as JSON");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace cohort::cli
