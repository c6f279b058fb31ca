#include "measure/steps.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/counted.h"
#include "base/memory.h"
#include "base/result.h"
#include "engine/backend_choice.h"
#include "kv/pages.h"
#include "measure/fed_streams.h"
#include "models/model.h"

namespace cohort {
namespace {

Expected<void> check_steps_options(const StepsOptions& o) {
  const auto at_least_one = [](std::string_view what, int64_t value, int64_t limit) -> Expected<void> {
    if (value >= 1 && value <= limit) return {};
    return fail(ErrorCode::invalid_argument, "{} is {}; expected 1 to {}", what, value, limit);
  };
  COHORT_TRY(at_least_one("the prompt length (-npp)", o.prompt_tokens, 1 << 24));
  COHORT_TRY(at_least_one("the number of generated tokens (-ntg)", o.generated_tokens, 1 << 24));
  COHORT_TRY(at_least_one("the number of repeats (-r)", o.repeats, 10000));
  if (o.streams.empty()) return fail(ErrorCode::invalid_argument, "no number of streams was given (-npl)");
  for (const int32_t b : o.streams) COHORT_TRY(at_least_one("a number of streams (-npl)", b, 65536));
  return {};
}

double scaled(double value, double unit) {
  return value / unit;
}

double gigabytes_per_second(const StepsReport& report, const StepsPoint& p) {
  return scaled(p.bytes_per_step * report.generated_tokens / p.decode_seconds, 1e9);
}

double roofline_percent(const StepsReport& report, const StepsPoint& p) {
  return report.bandwidth > 0 ? 100 * gigabytes_per_second(report, p) * 1e9 / report.bandwidth : 0;
}

}  // namespace

Expected<StepsReport> bench_steps(const StepsOptions& options,
                                  const std::function<void(const std::string&)>& progress) {
  COHORT_TRY(check_steps_options(options));
  StepsOptions o = options;
  const int32_t most = std::ranges::max(o.streams);
  o.engine.max_streams = most;
  const int32_t context = o.prompt_tokens + o.generated_tokens;
  COHORT_TRY(check_measured_options(o.engine));
  reset_peak_resident_memory();  // the probe of the bandwidth took a GiB
  COHORT_ASSIGN(auto model, Model::load(o.engine.model, context));
  if (const int32_t canvas = model->config().diffusion.canvas_length; canvas > 0) {
    return fail(ErrorCode::unsupported,
                "{} denoises {} tokens together, the ladder steps one token after another; cohort profile measures "
                "steps of canvases (-B: so many), cohort run whole answers",
                o.engine.model.string(), canvas);
  }
  const Program& program = model->program();
  o.engine.kv_positions = int64_t{most} * pages_for(context) * kPagePositions;
  COHORT_ASSIGN(const OpenedBackend opened, open_backend(*model, o.engine, {}));
  const auto& backend = opened.backend;

  StepsReport report;
  report.model = model->config().name;
  report.type = main_type(program);
  report.device = backend->description();
  report.prompt_tokens = o.prompt_tokens;
  report.generated_tokens = o.generated_tokens;
  report.repeats = o.repeats;
  report.bandwidth = o.bandwidth;
  if (!o.bandwidth_given) {
    if (const double own = backend->read_bandwidth(); own > 0) report.bandwidth = own;
  }
  report.weight_bytes = model->weight_bytes();
  const FeedShape shape = {o.prompt_tokens, o.generated_tokens, o.engine.prefill_rows, o.shared_tokens};
  for (const int32_t count : o.streams) {
    if (progress) progress(counted(count, "stream"));
    StepsPoint point;
    point.streams = count;
    std::vector<double> prefill, decode;
    for (int32_t repeat = 0; repeat <= o.repeats; ++repeat) {  // the first warms up
      FedStreams streams(*backend, program, shape, count);
      COHORT_ASSIGN(const StepStats read, streams.prefill());
      COHORT_ASSIGN(const StepStats generated, streams.decode());
      if (repeat == 0) continue;
      prefill.push_back(read.seconds);
      decode.push_back(generated.seconds);
      point.bytes_per_step = generated.bytes / o.generated_tokens;
      point.distinct_experts = generated.distinct_experts / o.generated_tokens;
    }
    point.prefill_seconds = median(prefill);
    point.decode_seconds = median(decode);
    point.decode_spread = (std::ranges::max(decode) - std::ranges::min(decode)) / point.decode_seconds;
    report.points.push_back(point);
  }
  report.resident_bytes = peak_resident_memory();
  return report;
}

/// What a figure above 100% means, when there is one.
std::string roofline_note(const StepsReport& r) {
  constexpr double kNoise = 105;
  if (std::ranges::none_of(r.points, [&](const StepsPoint& p) { return roofline_percent(r, p) > kNoise; })) return {};
  return "\nAbove 100%: the weights stayed in the processor's cache, or the memory was busier while its bandwidth was "
         "measured.\n";
}

std::string to_markdown(const StepsReport& r) {
  std::string out = fmt::format("{} {}, {}; median of {} repeats; ", r.model, r.type, r.device, r.repeats);
  out += r.bandwidth > 0 ? fmt::format("roofline at {:.1f} GB/s\n\n", r.bandwidth / 1e9) : "bandwidth not measured\n\n";
  out +=
      "|   PP |   TG |    B |   N_KV |  T_PP s | S_PP t/s |  T_TG s | S_TG t/s |     T s |    S t/s | spread | MB/step "
      "| experts |   GB/s | roofline |\n";
  out +=
      "|-----:|-----:|-----:|-------:|--------:|---------:|--------:|---------:|--------:|---------:|-------:|--------:"
      "|--------:|-------:|---------:|\n";
  for (const StepsPoint& p : r.points) {
    const double total = p.prefill_seconds + p.decode_seconds;
    const int64_t all = int64_t{p.streams} * (r.prompt_tokens + r.generated_tokens);
    out += fmt::format(
        "| {:4} | {:4} | {:4} | {:6} | {:7.3f} | {:8.1f} | {:7.3f} | {:8.1f} | {:7.3f} | {:8.1f} | {:5.1f}% | {:7.1f} "
        "| {:7.1f} | {:6.1f} | {:>8} |\n",
        r.prompt_tokens, r.generated_tokens, p.streams, all, p.prefill_seconds,
        p.streams * r.prompt_tokens / p.prefill_seconds, p.decode_seconds,
        p.streams * r.generated_tokens / p.decode_seconds, total, static_cast<double>(all) / total,
        100 * p.decode_spread, p.bytes_per_step / 1e6, p.distinct_experts, gigabytes_per_second(r, p),
        r.bandwidth > 0 ? fmt::format("{:.1f}%", roofline_percent(r, p)) : "-");
  }
  out += fmt::format("\nweights {}, peak resident memory {}\n", format_bytes(static_cast<double>(r.weight_bytes)),
                     format_bytes(static_cast<double>(r.resident_bytes)));
  return out + roofline_note(r);
}

std::string to_csv(const StepsReport& r) {
  std::string out =
      "device,model,type,engine,pp,tg,b,n_kv,t_pp,s_pp,t_tg,s_tg,t,s,spread,bytes_per_step,distinct_experts,gb_per_s,"
      "roofline_percent\n";
  for (const StepsPoint& p : r.points) {
    const double total = p.prefill_seconds + p.decode_seconds;
    const int64_t all = int64_t{p.streams} * (r.prompt_tokens + r.generated_tokens);
    out += fmt::format(
        "\"{}\",{},{},cohort,{},{},{},{},{:.6f},{:.2f},{:.6f},{:.2f},{:.6f},{:.2f},{:.4f},{:.0f},{:.2f},{:.2f},{:.2f}"
        "\n",
        r.device, r.model, r.type, r.prompt_tokens, r.generated_tokens, p.streams, all, p.prefill_seconds,
        p.streams * r.prompt_tokens / p.prefill_seconds, p.decode_seconds,
        p.streams * r.generated_tokens / p.decode_seconds, total, static_cast<double>(all) / total, p.decode_spread,
        p.bytes_per_step, p.distinct_experts, gigabytes_per_second(r, p), roofline_percent(r, p));
  }
  return out;
}

std::string to_json(const StepsReport& r) {
  nlohmann::ordered_json out{{"model", r.model},
                             {"type", r.type},
                             {"device", r.device},
                             {"prompt_tokens", r.prompt_tokens},
                             {"generated_tokens", r.generated_tokens},
                             {"repeats", r.repeats},
                             {"bandwidth", r.bandwidth},
                             {"weight_bytes", r.weight_bytes},
                             {"resident_bytes", r.resident_bytes}};
  for (const StepsPoint& p : r.points) {
    out["points"].push_back({{"streams", p.streams},
                             {"prefill_seconds", p.prefill_seconds},
                             {"decode_seconds", p.decode_seconds},
                             {"prefill_tokens_per_second", p.streams * r.prompt_tokens / p.prefill_seconds},
                             {"decode_tokens_per_second", p.streams * r.generated_tokens / p.decode_seconds},
                             {"decode_spread", p.decode_spread},
                             {"bytes_per_step", p.bytes_per_step},
                             {"distinct_experts", p.distinct_experts},
                             {"gb_per_s", gigabytes_per_second(r, p)},
                             {"roofline_percent", roofline_percent(r, p)}});
  }
  return out.dump(2) + "\n";
}

}  // namespace cohort
