#include "measure/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "measure/fed_streams.h"
#include "measure/synth_blocks.h"

namespace cohort {
namespace {

constexpr double kWorthIt = 0.97;

/// Median seconds of a layer for each candidate. They take turns, so that a machine that slows down slows all of them.
std::vector<double> measure(ExpertRunner& runner, const TuneOptions& o, cpu::Layout layout, int32_t rows) {
  const ExpertShape& shape = o.shape;
  const auto candidates = tuning_candidates();
  std::vector<float> x(static_cast<size_t>(rows * shape.hidden)), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random_word(3, i) >> 40) * 0x1p-24F - 0.5F;
  const std::vector<float> slots(static_cast<size_t>(rows * shape.top_k), 0.125F);
  std::vector<std::vector<double>> seconds(candidates.size());
  uint64_t seed = 1;
  for (int32_t repeat = 0; repeat <= o.repeats; ++repeat) {
    for (size_t c = 0; c < candidates.size(); ++c) {
      cpu::TuningTable table;
      table.set(layout, rows, candidates[c]);
      runner.set_tuning(table);
      double sum = 0;
      for (int64_t layer = 0; layer < shape.layers; ++layer)
        sum += runner.run(layer, x, routes_with_share(rows, shape.experts, shape.top_k, -1, ++seed), slots, y);
      if (repeat > 0) seconds[c].push_back(sum / static_cast<double>(shape.layers));
    }
  }
  std::vector<double> medians;
  medians.reserve(seconds.size());
  for (auto& s : seconds) medians.push_back(median(s));
  return medians;
}

}  // namespace

std::vector<TuningChoice> TuneReport::choices() const {
  std::vector<TuningChoice> out;
  out.reserve(types.size());
  for (const TunedType& t : types) out.push_back(t.choice);
  return out;
}

std::vector<cpu::ExpertTuning> tuning_candidates() {
  std::vector<cpu::ExpertTuning> out = {{}};
  for (const bool interleave : {false, true}) {
    for (const int32_t kilobytes : {48, 192, 1024}) {
      const cpu::ExpertTuning candidate{interleave, kilobytes << 10};
      if (candidate != out.front()) out.push_back(candidate);
    }
  }
  return out;
}

Expected<TuneReport> tune(const TuneOptions& options, const std::function<void(const std::string&)>& progress) {
  TuneOptions o = options;
  if (o.threads < 1 || o.threads > 1024)
    return fail(ErrorCode::invalid_argument, "--threads is {}; expected 1 to 1024", o.threads);
  if (o.repeats < 1 || o.repeats > 10000)
    return fail(ErrorCode::invalid_argument, "the number of repeats (-r) is {}; expected 1 to 10000", o.repeats);
  if (o.types.empty()) {
    for (const TypeInfo& info : all_types()) {
      const bool fits = o.shape.hidden % info.block_values == 0 && o.shape.inner % info.block_values == 0;
      if (info.quantised && fits) o.types.emplace_back(info.name);
    }
  }
  TuneReport report;
  report.key = tuning_key(o.isa, o.threads);
  for (const std::string& name : o.types) {
    const TypeInfo* info = find_type(name);
    if (info == nullptr || !info->quantised)
      return fail(ErrorCode::invalid_argument, "'{}' (--types) is no quantised type", name);
    if (progress) progress(fmt::format("making weights of type {}", info->name));
    ExpertShape shape = o.shape;
    shape.gate_up = shape.down = std::string(info->name);
    COHORT_ASSIGN(const ExpertWeights weights, ExpertWeights::create(shape, 1, o.threads));
    COHORT_ASSIGN(auto runner, ExpertRunner::create(weights, o.isa, o.threads));
    const auto candidates = tuning_candidates();
    for (const int32_t rows : cpu::TuningTable::kClassRows) {
      if (progress) progress(fmt::format("measuring {} at {} rows", info->name, rows));
      const auto seconds = measure(*runner, o, cpu::layout_of(info->type), rows);
      auto best = static_cast<size_t>(std::ranges::min_element(seconds) - seconds.begin());
      if (seconds[best] > kWorthIt * seconds[0]) best = 0;
      report.types.push_back(
          {std::string(info->name), {info->type, rows, candidates[best]}, seconds[best], seconds[0]});
    }
  }
  return report;
}

std::string to_markdown(const TuneReport& r) {
  std::string out = fmt::format("{}, {}, {} threads\n\n", r.key.processor, isa_name(r.key.isa), r.key.threads);
  out +=
      "| type       | rows | gate and up | job KiB | us a layer | default |\n"
      "|:-----------|-----:|:------------|--------:|-----------:|--------:|\n";
  for (const TunedType& t : r.types) {
    out += fmt::format("| {:10} | {:4} | {:11} | {:7} | {:10.0f} | {:7.0f} |\n", t.type, t.choice.rows,
                       t.choice.tuning.interleave ? "interleaved" : "sequential", t.choice.tuning.job_bytes >> 10,
                       t.seconds * 1e6, t.default_seconds * 1e6);
  }
  return out;
}

std::string to_json(const TuneReport& r) {
  nlohmann::ordered_json out{{"processor", r.key.processor}, {"isa", isa_name(r.key.isa)}, {"threads", r.key.threads}};
  for (const TunedType& t : r.types) {
    out["choices"].push_back({{"type", t.type},
                              {"rows", t.choice.rows},
                              {"interleave", t.choice.tuning.interleave},
                              {"job_bytes", t.choice.tuning.job_bytes},
                              {"seconds_per_layer", t.seconds},
                              {"default_seconds_per_layer", t.default_seconds}});
  }
  return out.dump(2) + "\n";
}

}  // namespace cohort
