// cohort perplexity: how well a model predicts a text, and how far it is from another one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/progress.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/failure.h"
#include "cli/interrupt.h"
#include "cli/values.h"
#include "formats/model_files.h"
#include "measure/perplexity.h"

namespace cohort::cli {
namespace {

struct Arguments {
  PerplexityOptions options;
  bool json = false;
};

int run(Arguments& a) {
  Progress progress("reading", stderr, "windows");
  a.options.progress = [&](int32_t done, int32_t total, double perplexity) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total), fmt::format("ppl {:.4f}", perplexity));
  };
  a.options.cancelled = InterruptGuard::interrupted;
  Progress packing("loading", stderr, "%");
  if (!a.options.save_base.empty()) {
    std::vector<std::filesystem::path> inputs = model_files(a.options.engine.model);
    inputs.push_back(a.options.text);
    if (const auto checked = check_output_file(a.options.save_base, inputs); !checked)
      return failed("perplexity", checked.error());
  }
  const InterruptGuard guard;
  const auto report = measure_perplexity(a.options, [&](std::string_view, double fraction) {
    packing.update(static_cast<uint64_t>(fraction * 100), 100, "");
    if (fraction >= 1) packing.clear();
  });
  packing.clear();
  progress.clear();
  if (!report) return failed("perplexity", report.error());
  fmt::print("{}", a.json ? to_json(*report) : to_text(*report));
  return 0;
}

}  // namespace

void add_perplexity_command(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("perplexity", "How well a model predicts a text, and how far it is from another model");
  command->footer(
      "The text is cut into windows of -c tokens (512), -np of which run together; the second half of each is scored, "
      "or "
      "with\n"
      "--stride N the last N tokens of windows that begin every N tokens. Base files are those of llama-perplexity\n"
      "(--kl-divergence-base).");
  add_engine_flags(*command, a->options.engine);
  command->add_option("-f,--file", a->options.text, "The text")->type_name("FILE");
  command->add_option("--stride", a->options.stride, "Score the last N tokens of windows that begin every N tokens")
      ->type_name("N")
      ->check(whole_number(0, INT32_MAX));
  command->add_option("--windows,--chunks", a->options.windows, "Windows to read, at most (0: all)")
      ->type_name("N")
      ->check(whole_number(0, INT32_MAX));
  command->add_option("--save-base", a->options.save_base, "Write the log-probabilities of every scored position")
      ->type_name("FILE");
  command
      ->add_option("--kl-base", a->options.kl_base,
                   "Compare with the log-probabilities in this file; it holds the text's tokens, so -f may be left out")
      ->type_name("FILE");
  command->add_flag("--json", a->json, "Report as JSON");
  command->callback([a, &exit_code] {
    if (a->options.text.empty() && a->options.kl_base.empty())
      throw CLI::RequiredError("-f FILE (the text), or --kl-base FILE, which holds the tokens of one,");
    exit_code = run(*a);
  });
}

}  // namespace cohort::cli
