// cohort imatrix: which columns of a model's matrices matter, for the encoders of low-bit types.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/progress.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/failure.h"
#include "cli/interrupt.h"
#include "cli/values.h"
#include "formats/model_files.h"
#include "measure/importance.h"

namespace cohort::cli {
namespace {

struct Arguments {
  ImportanceOptions options;
  std::filesystem::path output;
  std::string format;
  bool json = false;
};

int run(Arguments& a) {
  Progress progress("reading", stderr, "windows");
  a.options.progress = [&](int32_t done, int32_t total) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total), "");
  };
  a.options.cancelled = InterruptGuard::interrupted;
  Progress packing("loading", stderr, "%");
  std::vector<std::filesystem::path> inputs = model_files(a.options.engine.model);
  inputs.push_back(a.options.text);
  if (const auto checked = check_output_file(a.output, inputs); !checked) return failed("imatrix", checked.error());
  const InterruptGuard guard;
  const auto report = collect_importance(a.options, [&](std::string_view, double fraction) {
    packing.update(static_cast<uint64_t>(fraction * 100), 100, "");
    if (fraction >= 1) packing.clear();
  });
  packing.clear();
  progress.clear();
  if (!report) return failed("imatrix", report.error());
  const ImportanceFormat format = a.format.empty()    ? importance_format(a.output)
                                  : a.format == "dat" ? ImportanceFormat::legacy
                                                      : ImportanceFormat::gguf;
  if (const auto written = write_importance(report->matrix, a.output, format); !written)
    return failed("imatrix", written.error());
  fmt::print("{}", a.json ? to_json(*report) : to_text(*report));
  if (!a.json) fmt::print("wrote {}\n", a.output.string());
  return 0;
}

}  // namespace

void add_imatrix_command(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("imatrix", "Collect an importance matrix, which low-bit types are encoded with");
  command->footer(
      "The text is cut into windows of -c tokens (512), -np of which run together. Best from the model in f16, bf16 or "
      "f32: of a\n"
      "quantised one the inputs of the experts' down matrices are known to eight bits. The file is read by llama.cpp, "
      "too.");
  add_engine_flags(*command, a->options.engine);
  command->add_option("-f,--file", a->options.text, "The calibration text")->required()->type_name("FILE");
  command->add_option("-o,--output", a->output, "File to write")->required()->type_name("FILE");
  command->add_option("--format", a->format, "gguf, or dat: the older form (default: dat for *.dat)")
      ->type_name("NAME")
      ->check(one_of({"gguf", "dat"}));
  command->add_option("--windows,--chunks", a->options.windows, "Windows to read, at most (0: all)")
      ->type_name("N")
      ->check(whole_number(0, INT32_MAX));
  command->add_flag("--process-output", a->options.head, "Collect the head's input, too");
  command->add_flag("--json", a->json, "Report as JSON");
  command->callback([a, &exit_code] { exit_code = run(*a); });
}

}  // namespace cohort::cli
