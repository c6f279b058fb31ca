// cohort bench experts: the pass over the experts alone.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/commands.h"
#include "cli/expert_flags.h"
#include "cli/failure.h"
#include "cli/values.h"
#include "engine/backend_choice.h"
#include "measure/expert_bench.h"
#include "measure/machine.h"

namespace cohort::cli {
namespace {

struct Arguments {
  ExpertBenchOptions bench;
  std::string isa = "auto", output = "md";
  double bandwidth = -1;  // GB/s; below 0: measured
};

int run(Arguments& a) {
  ExpertBenchOptions& o = a.bench;
  const auto isa = parse_isa(a.isa);
  if (!isa) return failed("bench experts", isa.error());
  o.isa = *isa;
  if (o.threads == 0) o.threads = default_threads();
  if (const auto checked = check_shape(o.shape); !checked) return failed("bench experts", checked.error());
  o.bandwidth = a.bandwidth * 1e9;
  if (a.bandwidth < 0) {
    const auto probes = probe_machine(o.threads);
    if (!probes)
      return failed("bench experts",
                    fmt::format("cannot measure the machine: {} (give --bandwidth)", probes.error().message));
    o.bandwidth = probes->read_all * 1e9;
    for (const Probes::IntPeak& peak : probes->int8) {
      if (peak.isa <= o.isa) o.int8_peak = std::max(o.int8_peak, peak.all * 1e12);
    }
  }
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const auto report = bench_experts(o, [&](const std::string& line) {
    fmt::print(stderr, "{}{}{}", terminal ? "\r\033[K" : "", line, terminal ? "" : "\n");
  });
  if (terminal) fmt::print(stderr, "\r\033[K");
  if (!report) return failed("bench experts", report.error());
  fmt::print("{}", a.output == "csv" ? to_csv(*report) : a.output == "json" ? to_json(*report) : to_markdown(*report));
  return 0;
}

}  // namespace

void add_bench_experts_command(CLI::App& bench, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  ExpertBenchOptions& o = a->bench;
  o.shape.layers = 4;
  o.threads = 0;
  CLI::App* command = bench.add_subcommand("experts", "Speed of the pass over the experts alone, with random weights");
  command->add_option("--gate-up", o.shape.gate_up, "Type of gate and up")->type_name("TYPE")->capture_default_str();
  command->add_option("--down", o.shape.down, "Type of down")->type_name("TYPE")->capture_default_str();
  command->add_option("--tokens", o.tokens, "Numbers of tokens, separated by commas")
      ->check(whole_number(1, 65536))
      ->delimiter(',')
      ->type_name("N,N,...")
      ->capture_default_str();
  command
      ->add_option("--share", o.share,
                   "Share of the routes of every token but the first that repeat an expert: 0 is the worst case, 1 the "
                   "best (without it: uniformly random experts)")
      ->type_name("SHARE")
      ->check(number(0, 1));
  add_expert_shape_flags(*command, o.shape);
  command
      ->add_option("--layers", o.shape.layers,
                   "Layers that are walked in turn; their weights should be several times the caches")
      ->check(whole_number(1, 4096))
      ->capture_default_str();
  add_expert_run_flags(*command, o.threads, a->isa, o.repeats);
  command->add_option("--bandwidth", a->bandwidth, "GB/s that the roofline refers to (default: measured now; 0: none)")
      ->type_name("GB/s")
      ->check(number(0, 1e6));
  command->add_option("-o,--output", a->output, "md, csv or json")
      ->check(one_of({"md", "csv", "json"}))
      ->capture_default_str();
  command->callback([a, &exit_code] { exit_code = run(*a); });
}

}  // namespace cohort::cli
