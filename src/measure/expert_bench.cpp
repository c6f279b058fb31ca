#include "measure/expert_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/counted.h"
#include "base/result.h"
#include "measure/fed_streams.h"
#include "measure/synth_blocks.h"

namespace cohort {
namespace {

struct Rates {
  double gigabytes, gigamacs, roofline_percent;
};

Rates rates_of(const ExpertBenchReport& r, const ExpertBenchPoint& p) {
  const ExpertBenchOptions& o = r.options;
  const double memory = o.bandwidth > 0 ? p.bytes / o.bandwidth : 0;
  const double compute = o.int8_peak > 0 ? p.operations / o.int8_peak : 0;
  return {p.bytes / p.seconds / 1e9, p.operations / 2 / p.seconds / 1e9, 100 * std::max(memory, compute) / p.seconds};
}

Expected<void> check(const ExpertBenchOptions& o) {
  COHORT_TRY(check_shape(o.shape));
  if (o.tokens.empty()) return fail(ErrorCode::invalid_argument, "no number of tokens was given (--tokens)");
  for (const int32_t tokens : o.tokens) {
    if (tokens < 1 || tokens > 65536)
      return fail(ErrorCode::invalid_argument, "a number of tokens (--tokens) is {}; expected 1 to 65536", tokens);
  }
  if (o.share > 1) return fail(ErrorCode::invalid_argument, "--share is {}; expected 0 to 1", o.share);
  if (o.threads < 1 || o.threads > 1024)
    return fail(ErrorCode::invalid_argument, "--threads is {}; expected 1 to 1024", o.threads);
  if (o.repeats < 1 || o.repeats > 10000)
    return fail(ErrorCode::invalid_argument, "the number of repeats (-r) is {}; expected 1 to 10000", o.repeats);
  return {};
}

}  // namespace

Expected<ExpertBenchReport> bench_experts(const ExpertBenchOptions& options,
                                          const std::function<void(const std::string&)>& progress) {
  COHORT_TRY(check(options));
  if (progress) progress("making weights");
  const ExpertShape& shape = options.shape;
  COHORT_ASSIGN(const ExpertWeights weights, ExpertWeights::create(shape, 1, options.threads));
  COHORT_ASSIGN(auto runner, ExpertRunner::create(weights, options.isa, options.threads));
  ExpertBenchReport report{options, {}};
  uint64_t seed = 1;
  for (const int32_t tokens : options.tokens) {
    if (progress) progress(counted(tokens, "token"));
    std::vector<float> x(static_cast<size_t>(tokens * shape.hidden)), y(x.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random_word(7, i) >> 40) * 0x1p-23F - 1.0F;
    const std::vector<float> slots(static_cast<size_t>(tokens * shape.top_k), 1.0F / static_cast<float>(shape.top_k));
    ExpertBenchPoint point;
    point.tokens = tokens;
    double distinct = 0;
    std::vector<double> seconds;
    for (int32_t repeat = 0; repeat <= options.repeats; ++repeat) {  // the first warms up
      double sum = 0;
      for (int64_t layer = 0; layer < shape.layers; ++layer) {
        const auto routes = routes_with_share(tokens, shape.experts, shape.top_k, options.share, ++seed);
        sum += runner->run(layer, x, routes, slots, y);
        auto sorted = routes;
        std::ranges::sort(sorted);
        distinct += static_cast<double>(std::ranges::unique(sorted).begin() - sorted.begin());
      }
      if (repeat > 0) seconds.push_back(sum / static_cast<double>(shape.layers));
    }
    point.distinct = distinct / static_cast<double>(shape.layers * (options.repeats + 1));
    const auto later = static_cast<double>((tokens - 1) * shape.top_k);
    point.share = later > 0 ? 1 - (point.distinct - static_cast<double>(shape.top_k)) / later : 0;
    point.seconds = median(seconds);
    point.spread = (std::ranges::max(seconds) - std::ranges::min(seconds)) / point.seconds;
    point.bytes = point.distinct * runner->expert_bytes();
    point.operations = 6.0 * static_cast<double>(tokens * shape.top_k * shape.hidden * shape.inner);
    report.points.push_back(point);
  }
  return report;
}

std::string to_markdown(const ExpertBenchReport& r) {
  const ExpertBenchOptions& o = r.options;
  const ExpertShape& s = o.shape;
  std::string out = fmt::format(
      "{} experts of {}, top {}, hidden {}, {} layers, gate and up {}, down {}; {}, {} threads; median of {} repeats; "
      "roofline at {:.1f} GB/s and {:.2f} int8 TOP/s\n\n",
      s.experts, s.inner, s.top_k, s.hidden, s.layers, s.gate_up, s.down, isa_name(o.isa), o.threads, o.repeats,
      o.bandwidth / 1e9, o.int8_peak / 1e12);
  out +=
      "| tokens | distinct | share | ms a layer | spread |  MB a layer |   GB/s | GMAC/s | roofline | us a token |\n"
      "|-------:|---------:|------:|-----------:|-------:|------------:|-------:|-------:|---------:|-----------:|\n";
  for (const ExpertBenchPoint& p : r.points) {
    const Rates rates = rates_of(r, p);
    out += fmt::format(
        "| {:6} | {:8.1f} | {:5.2f} | {:10.3f} | {:5.1f}% | {:11.2f} | {:6.1f} | {:6.1f} | {:>8} | {:10.1f} |\n",
        p.tokens, p.distinct, p.share, p.seconds * 1e3, 100 * p.spread, p.bytes / 1e6, rates.gigabytes, rates.gigamacs,
        rates.roofline_percent > 0 ? fmt::format("{:.1f}%", rates.roofline_percent) : "-", p.seconds * 1e6 / p.tokens);
  }
  return out;
}

std::string to_csv(const ExpertBenchReport& r) {
  std::string out =
      "isa,threads,gate_up,down,hidden,inter,experts,top_k,layers,tokens,distinct,share,ms_per_layer,spread,bytes,"
      "gb_per_s,gmac_per_s,roofline_percent\n";
  const ExpertShape& s = r.options.shape;
  for (const ExpertBenchPoint& p : r.points) {
    const Rates rates = rates_of(r, p);
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{:.2f},{:.4f},{:.6f},{:.4f},{:.0f},{:.2f},{:.2f},{:.2f}\n",
                       isa_name(r.options.isa), r.options.threads, s.gate_up, s.down, s.hidden, s.inner, s.experts,
                       s.top_k, s.layers, p.tokens, p.distinct, p.share, p.seconds * 1e3, p.spread, p.bytes,
                       rates.gigabytes, rates.gigamacs, rates.roofline_percent);
  }
  return out;
}

std::string to_json(const ExpertBenchReport& r) {
  const ExpertShape& s = r.options.shape;
  nlohmann::ordered_json out{{"isa", isa_name(r.options.isa)},
                             {"threads", r.options.threads},
                             {"gate_up", s.gate_up},
                             {"down", s.down},
                             {"hidden", s.hidden},
                             {"inter", s.inner},
                             {"experts", s.experts},
                             {"top_k", s.top_k},
                             {"layers", s.layers},
                             {"repeats", r.options.repeats},
                             {"bandwidth", r.options.bandwidth},
                             {"int8_peak", r.options.int8_peak}};
  for (const ExpertBenchPoint& p : r.points) {
    const Rates rates = rates_of(r, p);
    out["points"].push_back({{"tokens", p.tokens},
                             {"distinct_experts", p.distinct},
                             {"share", p.share},
                             {"seconds_per_layer", p.seconds},
                             {"spread", p.spread},
                             {"bytes", p.bytes},
                             {"gb_per_s", rates.gigabytes},
                             {"gmac_per_s", rates.gigamacs},
                             {"roofline_percent", rates.roofline_percent}});
  }
  return out.dump(2) + "\n";
}

}  // namespace cohort
