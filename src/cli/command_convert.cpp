// cohort convert: a checkpoint folder to one GGUF file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/printable.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/interrupt.h"
#include "cli/values.h"
#include "convert/convert.h"
#include "engine/limits.h"

namespace cohort::cli {
namespace {

struct Arguments {
  std::string folder, output, type, name, pre;
  int jobs = 0;
  std::vector<std::string> set;
  bool json = false, ignore_unused = false;
};

std::string type_names() {
  std::string names;
  for (TensorType type : convert_types()) names += (names.empty() ? "" : ", ") + std::string(type_info(type).name);
  return names;
}

void print_report(const Arguments& arguments, const ConvertReport& report) {
  if (arguments.json) {
    nlohmann::ordered_json types = nlohmann::ordered_json::object();
    for (const auto& [type, count] : report.types) types[std::string(type_info(type).name)] = count;
    nlohmann::ordered_json out = {{"output", arguments.output},      {"bytes", report.bytes},
                                  {"parameters", report.parameters}, {"tensors", report.tensors},
                                  {"types", std::move(types)},       {"notes", report.notes}};
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return;
  }
  for (const std::string& note : report.notes) fmt::print(stderr, "note: {}\n", printable(note, kMessageBytes));
  std::string types;
  for (const auto& [type, count] : report.types) {
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", count, type_info(type).name);
  }
  fmt::print("wrote {}: {} tensors ({}), {} parameters, {}\n", arguments.output, report.tensors, types,
             report.parameters, human_bytes(report.bytes));
}

int run(const Arguments& arguments) {
  ConvertOptions options;
  if (!arguments.type.empty()) options.type = find_type(arguments.type)->type;
  options.jobs =
      arguments.jobs > 0 ? arguments.jobs : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.name = arguments.name;
  options.pre = arguments.pre;
  options.ignore_unused = arguments.ignore_unused;
  for (const std::string& pair : arguments.set) {
    size_t equals = pair.find('=');
    options.set.emplace_back(pair.substr(0, equals), equals == pair.npos ? "" : pair.substr(equals + 1));
  }
  Progress progress("converting", stderr);
  options.progress = [&](const ConvertProgress& p) { progress.update(p.done_bytes, p.total_bytes, p.tensor); };
  options.cancelled = InterruptGuard::interrupted;
  const InterruptGuard guard;
  auto report = convert(arguments.folder, arguments.output, options);
  progress.clear();
  if (!report) return failed("convert", report.error());
  print_report(arguments, *report);
  return 0;
}

}  // namespace

void add_convert_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("convert", "Convert a Hugging Face safetensors folder to a GGUF file");
  command->footer(
      "Norms, biases and routers stay f32. q4_0 and q4_k keep the head (or the embedding that serves as head) in q6_k. "
      "Where rows\n"
      "are no multiple of 256, q4_k becomes q5_0 and q6_k becomes q8_0; where they are no multiple of 32, the tensor "
      "becomes f16.\n"
      "The file appears only when it is complete; a stopped or failed conversion leaves nothing behind.");
  command->add_option("DIR", arguments->folder, "Folder with config.json, tokenizer.json and safetensors")->required();
  command->add_option("-o,--output", arguments->output, "GGUF file to write")->required()->type_name("FILE");
  command
      ->add_option("--type", arguments->type,
                   "Type of the matrices: " + type_names() + " (default: as the checkpoint has them)")
      ->type_name("TYPE")
      ->check([](const std::string& text) -> std::string {
        const TypeInfo* info = find_type(text);
        const auto& types = convert_types();
        if (info != nullptr && std::find(types.begin(), types.end(), info->type) != types.end()) return {};
        return fmt::format("'{}' is no type that checkpoints are converted to: {}", text, type_names());
      });
  command->add_option("--jobs", arguments->jobs, "Threads (0: one per core)")
      ->type_name("N")
      ->check(whole_number(0, kMaxThreads))
      ->capture_default_str();
  command->add_option("--name", arguments->name, "Name of the model in the file (default: the folder's)")
      ->type_name("TEXT");
  command->add_option("--pre", arguments->pre, "Name of the pre-tokenizer (default: recognised by its patterns)")
      ->type_name("NAME");
  command->add_option("--set", arguments->set, "Add a text about the model, e.g. general.license=cc0-1.0 (repeatable)")
      ->type_name("KEY=TEXT")
      ->allow_extra_args(false);
  command->add_flag("--ignore-unused", arguments->ignore_unused, "Leave out tensors that the model does not use");
  command->add_flag("--json", arguments->json, "Report as JSON");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace cohort::cli
