// cohort quantize: a GGUF file with other types.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/printable.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/interrupt.h"
#include "cli/values.h"
#include "convert/quantise.h"
#include "engine/limits.h"

namespace cohort::cli {
namespace {

struct Arguments {
  std::filesystem::path input, output;
  std::string type, head, embedding, split_size;
  std::vector<std::string> overrides;
  QuantiseOptions options;
  bool json = false, as_mix = false;
};

std::string mix_names() {
  std::string names;
  for (const MixInfo& mix : all_mixes()) names += (names.empty() ? "" : ", ") + std::string(mix.name);
  return names;
}

std::string check_mix(const std::string& text) {
  return find_mix(text) != nullptr ? std::string() : fmt::format("'{}' is no type; known are {}", text, mix_names());
}

std::string check_type(const std::string& text) {
  const TypeInfo* info = find_type(text);
  if (info != nullptr && (has_encoder(info->type) || !info->quantised) && info->weight) return {};
  return fmt::format("'{}' is no type of a tensor that can be written", text);
}

std::string check_override(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0)
    return fmt::format("'{}': expected PATTERN=TYPE, such as 'ffn_down_exps=q4_k'", text);
  return check_type(text.substr(equals + 1));
}

/// "2G", "500M" (powers of 1000, as disks are sold) or bytes; 0 when it is none of them.
uint64_t bytes_of(const std::string& text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc()) return 0;
  uint64_t unit = 1;
  if (rest + 1 == end && (*rest == 'M' || *rest == 'm')) unit = 1'000'000;
  if (rest + 1 == end && (*rest == 'G' || *rest == 'g')) unit = 1'000'000'000;
  if (rest != end && unit == 1) return 0;
  return value > UINT64_MAX / unit ? 0 : value * unit;
}

std::string check_bytes(const std::string& text) {
  return bytes_of(text) > 0 ? std::string() : fmt::format("'{}' is no size; give bytes, or a number with M or G", text);
}

void print_report(const Arguments& a, const QuantiseReport& r) {
  std::map<std::string_view, size_t> types;
  for (const QuantisedTensor& t : r.tensors) ++types[type_info(t.to).name];
  if (a.json) {
    nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
    for (const QuantisedTensor& t : r.tensors) {
      tensors.push_back({{"name", t.name},
                         {"shape", t.shape},
                         {"from", type_info(t.from).name},
                         {"to", type_info(t.to).name},
                         {"importance", t.importance}});
    }
    nlohmann::ordered_json files = nlohmann::ordered_json::array();
    for (const auto& file : r.files) files.push_back(file.string());
    const nlohmann::ordered_json out{{"files", files},
                                     {"parameters", r.parameters},
                                     {"bytes_before", r.in_bytes},
                                     {"bytes", r.out_bytes},
                                     {"bits_per_weight", r.bits_per_weight},
                                     {"types", types},
                                     {"notes", r.notes},
                                     {"tensors", tensors}};
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return;
  }
  for (const std::string& note : r.notes) fmt::print(stderr, "note: {}\n", printable(note, kMessageBytes));
  if (a.options.dry_run) {
    for (const QuantisedTensor& t : r.tensors) {
      fmt::print("{:<40} {:>8} -> {:<8}{}\n", printable(t.name, kMessageBytes), type_info(t.from).name,
                 type_info(t.to).name, t.importance ? " by importance" : "");
    }
  }
  std::string text;
  for (const auto& [type, count] : types) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, type);
  fmt::print("{} tensors ({}), {} parameters: {} instead of {}, {:.2f} bits a weight\n", r.tensors.size(), text,
             r.parameters, human_bytes(r.out_bytes), human_bytes(r.in_bytes), r.bits_per_weight);
  if (r.files.size() == 1) fmt::print("wrote {}\n", r.files[0].string());
  if (r.files.size() > 1) {
    fmt::print("wrote {} files, {} to {}\n", r.files.size(), r.files.front().string(), r.files.back().string());
  }
}

int run(Arguments& a) {
  QuantiseOptions& o = a.options;
  o.mix = find_mix(a.type);
  if (!a.head.empty()) o.head = find_type(a.head)->type;
  if (!a.embedding.empty()) o.embedding = find_type(a.embedding)->type;
  if (a.as_mix) o.attention = AttentionWidth::as_mix;
  if (!a.split_size.empty()) o.split_bytes = bytes_of(a.split_size);
  for (const std::string& text : a.overrides) {
    const size_t equals = text.rfind('=');
    o.overrides.emplace_back(text.substr(0, equals), find_type(text.substr(equals + 1))->type);
  }
  if (o.jobs == 0) o.jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  Progress progress("quantising", stderr);
  o.progress = [&](const ConvertProgress& p) { progress.update(p.done_bytes, p.total_bytes, p.tensor); };
  o.cancelled = InterruptGuard::interrupted;
  const InterruptGuard guard;
  const auto report = quantise(a.input, a.output, o);
  progress.clear();
  if (!report) return failed("quantize", report.error());
  print_report(a, *report);
  return 0;
}

}  // namespace

void add_quantize_command(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  a->options.jobs = 0;
  CLI::App* command = app.add_subcommand("quantize", "Write a GGUF file with other types");
  command->footer(
      "Types: " + mix_names() +
      ".\n"
      "Norms, vectors and routers stay f32, the head is at least q5_k. In MoE models attention is one step wider than\n"
      "the experts (--as-mix: as llama.cpp has it). iq1_* and iq2_* need an importance matrix (cohort imatrix), the\n"
      "other types gain by one. Where rows are no multiple of a type's block, a type with smaller blocks takes its "
      "place.\n"
      "The file appears only when it is complete; a stopped or failed run leaves nothing behind.");
  command->add_option("IN", a->input, "GGUF file (the first of a split), best in f32, f16 or bf16")->required();
  command->add_option("OUT", a->output, "GGUF file to write")->required();
  command->add_option("TYPE", a->type, "Type or mix, such as q4_k_m")->required()->check(check_mix);
  command->add_option("--imatrix", a->options.importance, "Importance matrix")->type_name("FILE");
  command
      ->add_option("--tensor-type", a->overrides,
                   "Type of the matrices whose names the regular expression PATTERN is found in (repeatable; the first "
                   "that matches counts)")
      ->type_name("PATTERN=TYPE")
      ->allow_extra_args(false)
      ->check(check_override);
  command->add_option("--output-tensor-type", a->head, "Type of the head")->type_name("TYPE")->check(check_type);
  command->add_option("--token-embedding-type", a->embedding, "Type of the embedding")
      ->type_name("TYPE")
      ->check(check_type);
  command->add_flag("--pure", a->options.pure, "The base type for every matrix, head and embedding included");
  command->add_flag("--as-mix", a->as_mix, "Attention of MoE models as narrow as llama.cpp's mixes have it");
  command->add_flag("--no-imatrix-needed", a->options.allow_no_importance,
                    "Encode iq1_* and iq2_* without an importance matrix, too");
  command->add_option("--split-max-size", a->split_size, "Tensors of one file, at most: write several (2G, 500M)")
      ->type_name("SIZE")
      ->check(check_bytes);
  command->add_option("--split-max-tensors", a->options.split_tensors, "Tensors of one file, at most: write several")
      ->type_name("N")
      ->check(whole_number(1, INT32_MAX));
  command->add_option("--jobs", a->options.jobs, "Threads (0: one per core)")
      ->type_name("N")
      ->check(whole_number(0, kMaxThreads))
      ->capture_default_str();
  command->add_flag("--dry-run", a->options.dry_run, "Only say what would be written");
  command->add_flag("--json", a->json, "Report as JSON");
  command->callback([a, &exit_code] { exit_code = run(*a); });
}

}  // namespace cohort::cli
