// cohort inspect: what is in a model file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "cli/commands.h"
#include "measure/inspect_file.h"

namespace cohort::cli {
namespace {

struct Arguments {
  std::string path, key;
  bool json = false, full = false;
};

constexpr size_t kMessageBytes = 4000;
constexpr size_t kJsonItems = 16;  // of an array, without --full

int failed(const std::string& message) {
  fmt::print(stderr, "cohort inspect: {}\n", printable(message, kMessageBytes));
  return 1;
}

int print_key(const FileSummary& summary, const std::string& key) {
  auto found = std::find_if(summary.metadata.begin(), summary.metadata.end(),
                            [&](const auto& entry) { return entry.first == key; });
  if (found == summary.metadata.end())
    return failed(fmt::format("'{}' has no metadata key '{}'", summary.path.string(), key));
  fmt::print("{}\n", value_text(found->second));
  return 0;
}

int run(const Arguments& arguments) {
  auto summary = summarise(arguments.path);
  if (!summary) return failed(summary.error().message);
  if (!arguments.key.empty()) return print_key(*summary, arguments.key);
  if (arguments.json) {
    auto json = summary_json(*summary, arguments.full ? SIZE_MAX : kJsonItems);
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    fmt::print("{}", summary_text(*summary));
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
  command->add_flag("--json", arguments->json, "Report as JSON");
  command->add_flag("--full", arguments->full, "With --json: arrays in full instead of their first 16 items");
  command->add_option("--key", arguments->key, "Print only the value of this metadata key, in full")->type_name("KEY");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace cohort::cli
