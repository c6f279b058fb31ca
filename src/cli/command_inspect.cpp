// cohort inspect: what is in a model file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/values.h"
#include "engine/limits.h"
#include "measure/inspect_file.h"
#include "measure/inspect_program.h"

namespace cohort::cli {
namespace {

struct Arguments {
  std::string path, key;
  bool json = false, full = false, program = false;
  int32_t context = 0, streams = 1;
  std::string kv_type = "f16";
};

constexpr size_t kMessageBytes = 4000;
constexpr size_t kJsonItems = 16;  // of an array, without --full

int print_key(const FileSummary& summary, const std::string& key) {
  auto found = std::find_if(summary.metadata.begin(), summary.metadata.end(),
                            [&](const auto& entry) { return entry.first == key; });
  if (found == summary.metadata.end())
    return failed("inspect", fmt::format("'{}' has no metadata key '{}'", summary.path.string(), key));
  fmt::print("{}\n", value_text(found->second));
  return 0;
}

int run(const Arguments& arguments) {
  auto summary = summarise(arguments.path);
  if (!summary) return failed("inspect", summary.error());
  if (!arguments.key.empty()) return print_key(*summary, arguments.key);
  // A file whose architecture this build cannot run is still worth looking at: then the reason stands where the figures
  // would.
  const auto running =
      summarise_run(arguments.path, arguments.context, arguments.streams, arguments.kv_type, arguments.program);
  if (!running && (arguments.program || arguments.context != 0)) return failed("inspect", running.error());
  if (arguments.json) {
    auto json = summary_json(*summary, arguments.full ? SIZE_MAX : kJsonItems);
    if (running) {
      json["run"] = to_json(*running);
    } else {
      json["cannot_run"] = running.error().message;
    }
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    if (!arguments.program) fmt::print("{}", summary_text(*summary));
    if (running) {
      fmt::print("{}", to_text(*running));
    } else {
      fmt::print("cannot run     {}\n", printable(running.error().message, kMessageBytes));
    }
  }
  return 0;
}

}  // namespace

void add_inspect_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("inspect", "Show the metadata, tensors and sizes of a model");
  command
      ->add_option("MODEL", arguments->path,
                   "GGUF file (the first of a split) or folder with config.json and safetensors")
      ->required();
  command->add_flag("--program", arguments->program,
                    "Show the operations that a step runs instead of metadata and tensors");
  command
      ->add_option("-c,--context", arguments->context,
                   "Context for the memory figures (0: what the model was made for)")
      ->check(whole_number(0, kMaxContextOption))
      ->type_name("N");
  command->add_option("--np,--streams", arguments->streams, "Streams for the memory figures")
      ->type_name("N")
      ->check(whole_number(1, kMaxStreams))
      ->capture_default_str();
  command->add_option("--kv-type", arguments->kv_type, "Type of the KV cache: f32, f16, bf16, q8_0")
      ->check(one_of({"f32", "f16", "bf16", "q8_0"}))
      ->type_name("TYPE")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Report as JSON");
  command->add_flag("--full", arguments->full, "With --json: arrays in full instead of their first 16 items");
  command->add_option("--key", arguments->key, "Print only the value of this metadata key, in full")->type_name("KEY");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace cohort::cli
