// cohort parity: are the bits the same in every way of running a stream?
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/failure.h"
#include "cli/values.h"
#include "measure/parity.h"
#include "measure/soak.h"

namespace cohort::cli {
namespace {

struct Arguments {
  ParityOptions parity;
  ExpertParityOptions experts;
  bool only_experts = false, no_reference = false, json = false;
  double soak_seconds = 0;
};

/// "all": every type that has a weight; others stay.
std::vector<std::string> expand(const std::vector<std::string>& names, int64_t cols) {
  if (std::ranges::find(names, "all") == names.end()) return names;
  std::vector<std::string> all;
  for (const TypeInfo& info : all_types()) {
    if (info.weight && cols % info.block_values == 0) all.emplace_back(info.name);
  }
  return all;
}

bool passed(const SoakReport& report) {
  return report.passed();
}
template <class Report>
bool passed(const Report& report) {
  return report.equal();
}

template <class Report>
int show(const tl::expected<Report, Error>& report, bool json) {
  if (::isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K");
  if (!report) return failed("parity", report.error());
  fmt::print("{}", json ? to_json(*report) : to_text(*report));
  return passed(*report) ? 0 : 1;
}

int run(Arguments& a) {
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const auto progress = [&](const std::string& line) {
    fmt::print(stderr, "{}{}{}", terminal ? "\r\033[K" : "", line, terminal ? "" : "\n");
  };
  if (a.only_experts) {
    // One that stands in the environment for all commands is no mistake of this one.
    const char* everywhere = std::getenv("COHORT_MODEL");
    if (!a.parity.engine.model.empty() && (everywhere == nullptr || a.parity.engine.model != everywhere)) {
      failed("parity", "--experts takes no model (-m): its weights are random");
      return kUsage;
    }
    a.experts.gate_up = expand(a.experts.gate_up, a.experts.hidden);
    a.experts.down = expand(a.experts.down, a.experts.inner);
    return show(check_expert_parity(a.experts, progress), a.json);
  }
  if (a.parity.engine.model.empty()) {
    failed("parity", "a model (-m FILE) is needed, or --experts");
    return kUsage;
  }
  if (a.soak_seconds > 0) {
    SoakOptions options;
    options.engine = a.parity.engine;
    options.alone = alone_options(options.engine);
    options.seconds = a.soak_seconds;
    return show(soak(options, progress), a.json);
  }
  a.parity.reference = !a.no_reference;
  a.parity.streams = a.parity.engine.max_streams;
  return show(check_parity(a.parity, progress), a.json);
}

}  // namespace

void add_parity_command(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "parity",
      "Compare bits: alone and in company, chunks, windows, shared pages, threads, instruction sets; exit "
      "status 1 and the first difference when they differ");
  add_engine_flags(*command, a->parity.engine);
  command->get_option("--model")->required(false);
  a->parity.engine.max_streams = a->parity.streams;
  command->add_option("--tokens-each", a->parity.tokens, "Tokens of each stream")
      ->check(whole_number(2, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--reference-tokens", a->parity.reference_tokens, "Tokens of each stream for the slow scalar code")
      ->check(whole_number(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--no-reference", a->no_reference, "Leave the scalar reference out");
  command
      ->add_option("--soak", a->soak_seconds,
                   "Instead: streams join, end and are cancelled at random for so many seconds; tokens and logits of "
                   "each are compared with the same request alone, and memory must not grow")
      ->check(number(0.001, 1e9))
      ->type_name("SECONDS");
  CLI::Option* only_experts = command->add_flag(
      "--experts", a->only_experts, "The pass over the experts alone, with random weights, without a model");
  ExpertParityOptions& e = a->experts;
  command->add_option("--gate-up", e.gate_up, "With --experts: types of gate and up, or all")
      ->delimiter(',')
      ->type_name("TYPE,...");
  command->add_option("--down", e.down, "With --experts: types of down, or all")->delimiter(',')->type_name("TYPE,...");
  command->add_option("--tokens", e.tokens, "With --experts: numbers of tokens")
      ->check(whole_number(1, 4096))
      ->delimiter(',')
      ->type_name("N,N,...");
  command
      ->add_option(
          "--share", e.shares,
          "With --experts: shares of the routes of every token but the first that repeat an expert (without it: "
          "uniformly random experts)")
      ->check(CLI::Range(0.0, 1.0))
      ->delimiter(',')
      ->type_name("SHARE,...");
  command->add_option("--hidden", e.hidden, "With --experts: width of a token")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--inter", e.inner, "With --experts: width inside of an expert")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--expert-count", e.experts, "With --experts: experts")
      ->check(whole_number(1, 65536))
      ->capture_default_str();
  command->add_option("--top-k", e.top_k, "With --experts: experts of a token")
      ->check(whole_number(1, 65536))
      ->capture_default_str();
  for (const char* option :
       {"--gate-up", "--down", "--tokens", "--share", "--hidden", "--inter", "--expert-count", "--top-k"})
    command->get_option(option)->needs(only_experts);
  for (const char* option : {"--soak", "--tokens-each", "--reference-tokens", "--no-reference"})
    command->get_option(option)->excludes(only_experts);
  command->add_flag("--json", a->json, "Report as JSON");
  command->callback([a, &exit_code] { exit_code = run(*a); });
}

}  // namespace cohort::cli
