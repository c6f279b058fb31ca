#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "measure/profile.h"

namespace cohort {
namespace {

double per_second(double amount, double seconds) {
  return seconds > 0 ? amount / seconds : 0;
}

std::string title_of(const ProfilePoint& p) {
  return p.prefill ? fmt::format("Prefill, {:.0f} rows a step", p.rows)
                   : fmt::format("{} stream{}", p.streams, p.streams == 1 ? "" : "s");
}

std::string table_row(const ProfileEntry& e, const ProfilePoint& p) {
  return fmt::format(
      "| {:<16} | {:<8} | {:8.3f} | {:5.1f}% | {:8.2f} | {:6.1f} | {:8.1f} | {:>8} | {:6} |\n", e.name, e.kind,
      e.seconds * 1e3, 100 * e.seconds / p.seconds, e.bytes / 1e6, per_second(e.bytes, e.seconds) / 1e9,
      per_second(e.operations, e.seconds) / 1e9,
      e.roofline_seconds > 0 && e.seconds > 0 ? fmt::format("{:.0f}%", 100 * e.roofline_seconds / e.seconds) : "-",
      e.jobs);
}

nlohmann::ordered_json json_of(const ProfileEntry& e) {
  return {{"name", e.name},
          {"kind", e.kind},
          {"seconds", e.seconds},
          {"bytes", e.bytes},
          {"operations", e.operations},
          {"gb_per_s", per_second(e.bytes, e.seconds) / 1e9},
          {"roofline_seconds", e.roofline_seconds},
          {"jobs", e.jobs}};
}

}  // namespace

std::string to_markdown(const ProfileReport& r) {
  std::string out = fmt::format(
      "{} {}, {}; {} prompt tokens, {} decode steps; the machine reads {:.1f} GB/s and does {:.2f} int8 and {:.2f} f32 "
      "TOP/s\n",
      r.model, r.type, r.device, r.prompt_tokens, r.steps, r.bandwidth / 1e9, r.int8_peak / 1e12, r.float_peak / 1e12);
  const bool on_device = r.threads == 0;
  if (on_device) {
    out = fmt::format("{} {}, {}; {} prompt tokens, {} decode steps; the device reads {:.1f} GB/s\n", r.model, r.type,
                      r.device, r.prompt_tokens, r.steps, r.bandwidth / 1e9);
  }
  for (const ProfilePoint& p : r.points) {
    out += fmt::format("\n## {}: {:.3f} ms a step, {:.1f} tok/s, {:.0f}% of roofline", title_of(p), p.seconds * 1e3,
                       p.rows / p.seconds, 100 * p.roofline_seconds / p.seconds);
    if (on_device) {
      out +=
          "\n\n| kernels          | ms alone | launches | us each |\n"
          "|:-----------------|---------:|---------:|--------:|\n";
      for (const ProfileEntry& e : p.operations) {
        out += fmt::format("| {:<16} | {:8.3f} | {:8} | {:7.1f} |\n", e.name, e.seconds * 1e3, e.jobs,
                           e.seconds * 1e6 / static_cast<double>(e.jobs));
      }
      out += "\n" + p.explanation + "\n";
      continue;
    }
    out += fmt::format(", cores {:.0f}% busy\n\n", 100 * p.core_use);
    out +=
        "| operation        | kind     |  ms/step |  share |       MB |   GB/s |    Gop/s | roofline |   jobs |\n"
        "|:-----------------|:---------|---------:|-------:|---------:|-------:|---------:|---------:|-------:|\n";
    for (const ProfileEntry& e : p.operations) out += table_row(e, p);
    out += table_row({"(waiting)", "barrier", p.wait_seconds}, p);
    out += table_row({"(planning)", "serial", p.serial_seconds}, p);
    out += "\n" + p.explanation + "\n";
  }
  if (on_device) return out;
  out += "\n## Layers, ms a step (% of roofline)\n\n| layer   |";
  for (const ProfilePoint& p : r.points)
    out += fmt::format(" {:>15} |", p.prefill ? "prefill" : fmt::format("B={}", p.streams));
  out += "\n|:--------|";
  for (size_t i = 0; i < r.points.size(); ++i) out += "----------------:|";
  out += "\n";
  for (size_t layer = 0; layer < r.points.front().layers.size(); ++layer) {
    out += fmt::format("| {:<7} |", r.points.front().layers[layer].name);
    for (const ProfilePoint& p : r.points) {
      const ProfileEntry& e = p.layers[layer];
      out += fmt::format(" {:>15} |", fmt::format("{:.3f} ({:.0f}%)", e.seconds * 1e3,
                                                  100 * per_second(e.roofline_seconds, e.seconds)));
    }
    out += "\n";
  }
  return out;
}

std::string to_json(const ProfileReport& r) {
  nlohmann::ordered_json out{{"model", r.model},
                             {"type", r.type},
                             {"device", r.device},
                             {"threads", r.threads},
                             {"prompt_tokens", r.prompt_tokens},
                             {"steps", r.steps},
                             {"bandwidth", r.bandwidth},
                             {"int8_peak", r.int8_peak},
                             {"float_peak", r.float_peak}};
  for (const ProfilePoint& p : r.points) {
    nlohmann::ordered_json point{{"streams", p.streams},
                                 {"phase", p.prefill ? "prefill" : "decode"},
                                 {"rows_per_step", p.rows},
                                 {"step_seconds", p.seconds},
                                 {"tokens_per_second", p.rows / p.seconds},
                                 {"distinct_experts", p.distinct_experts},
                                 {"wait_seconds", p.wait_seconds},
                                 {"serial_seconds", p.serial_seconds},
                                 {"core_use", p.core_use},
                                 {"roofline_seconds", p.roofline_seconds},
                                 {"roofline_percent", 100 * p.roofline_seconds / p.seconds},
                                 {"bound_by", p.memory_bound ? "memory" : "compute"},
                                 {"explanation", p.explanation}};
    for (const ProfileEntry& e : p.operations) point["operations"].push_back(json_of(e));
    for (const ProfileEntry& e : p.layers) point["layers"].push_back(json_of(e));
    out["points"].push_back(std::move(point));
  }
  return out.dump(2) + "\n";
}

}  // namespace cohort
