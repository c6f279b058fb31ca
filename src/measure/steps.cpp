#include "measure/steps.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/memory.h"
#include "base/result.h"
#include "base/rng.h"
#include "engine/backend_choice.h"
#include "kv/pages.h"
#include "models/model.h"

namespace cohort {
namespace {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// One set of streams on a backend, each on pages of its own.
class Streams {
 public:
  Streams(Backend& backend, const Program& program, const StepsOptions& options, int32_t count)
      : backend_(backend), program_(program), options_(options), pages_(static_cast<size_t>(count)) {
    const int32_t each = pages_for(options.prompt_tokens + options.generated_tokens);
    int32_t next = 0;
    for (auto& pages : pages_) {
      pages.resize(static_cast<size_t>(each));
      std::iota(pages.begin(), pages.end(), next);
      next += each;
    }
    logits_.resize(pages_.size() * static_cast<size_t>(program.vocabulary));
  }

  /// Reads every prompt, prefill_rows a step; the last row of each is sampled, as a server would.
  Expected<double> prefill() {
    double seconds = 0;
    for (size_t stream = 0; stream < pages_.size(); ++stream) {
      for (int32_t first = 0; first < options_.prompt_tokens; first += options_.engine.prefill_rows) {
        const int32_t rows = std::min(options_.engine.prefill_rows, options_.prompt_tokens - first);
        Batch batch;
        add_rows(batch, stream, first, rows);
        if (first + rows == options_.prompt_tokens) batch.sampled_rows.push_back(rows - 1);
        COHORT_ASSIGN(const double spent, step(batch));
        seconds += spent;
      }
    }
    return seconds;
  }

  Expected<double> decode(double& bytes, double& experts) {
    double seconds = 0;
    for (int32_t i = 0; i < options_.generated_tokens; ++i) {
      Batch batch;
      for (size_t stream = 0; stream < pages_.size(); ++stream) {
        add_rows(batch, stream, options_.prompt_tokens + i, 1);
        batch.sampled_rows.push_back(static_cast<int32_t>(stream));
      }
      COHORT_ASSIGN(const double spent, step(batch));
      seconds += spent;
      bytes += stats_.bytes;
      experts += stats_.distinct_experts;
    }
    return seconds;
  }

 private:
  void add_rows(Batch& batch, size_t stream, int32_t first, int32_t rows) {
    batch.sequences.push_back({batch.rows(), rows, first, pages_[stream]});
    for (int32_t r = 0; r < rows; ++r) {
      const auto position = static_cast<uint32_t>(first + r);
      const float u = uniform(1, position, 0, options_.shared_tokens ? 0 : static_cast<uint32_t>(stream));
      batch.tokens.push_back(static_cast<int32_t>(u * static_cast<float>(program_.vocabulary)));
      batch.positions.push_back(first + r);
    }
  }

  Expected<double> step(const Batch& batch) {
    const auto start = std::chrono::steady_clock::now();
    const size_t wanted = batch.sampled_rows.size() * static_cast<size_t>(program_.vocabulary);
    COHORT_ASSIGN(stats_, backend_.run(batch, std::span(logits_).first(wanted)));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  Backend& backend_;
  const Program& program_;
  const StepsOptions& options_;
  std::vector<std::vector<int32_t>> pages_;
  std::vector<float> logits_;
  StepStats stats_;
};

/// The type that holds most of the model's weight bytes.
std::string main_type(const Program& program) {
  std::map<std::string, size_t> bytes;
  const auto count = [&](const Weight* w) { bytes[std::string(type_info(w->type).name)] += w->bytes(); };
  for (const Op& op : program.ops) {
    if (const auto* linear = std::get_if<op::Linear>(&op.action)) count(linear->weight);
    if (const auto* experts = std::get_if<op::Experts>(&op.action)) {
      for (const Weight* w : {experts->gate, experts->up, experts->down}) count(w);
    }
  }
  const auto largest = std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  return largest == bytes.end() ? "none" : largest->first;
}

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
  COHORT_ASSIGN(auto model, Model::load(o.engine.model, context));
  const Program& program = model->program();
  COHORT_ASSIGN(const TensorType kv_type, parse_kv_type(o.engine.kv_type));
  const size_t page_bytes = KvCache::page_bytes(program.cache_layers, kv_type);
  o.engine.kv_positions = int64_t{most} * pages_for(context) * kPagePositions;
  COHORT_ASSIGN(const int32_t pages, choose_pages(o.engine, *model, page_bytes));
  COHORT_ASSIGN(auto backend, make_backend(program, o.engine, {}));
  COHORT_TRY(backend->allocate_cache(kv_type, pages));

  StepsReport report;
  report.model = model->config().name;
  report.type = main_type(program);
  report.device = backend->description();
  report.prompt_tokens = o.prompt_tokens;
  report.generated_tokens = o.generated_tokens;
  report.repeats = o.repeats;
  report.bandwidth = o.bandwidth;
  report.weight_bytes = model->weight_bytes();
  const double page_position_bytes = static_cast<double>(page_bytes) / kPagePositions;
  for (const int32_t count : o.streams) {
    if (progress) progress(fmt::format("{} streams", count));
    StepsPoint point;
    point.streams = count;
    std::vector<double> prefill, decode;
    for (int32_t repeat = 0; repeat <= o.repeats; ++repeat) {  // the first warms up
      Streams streams(*backend, program, o, count);
      double bytes = 0, experts = 0;
      COHORT_ASSIGN(const double prefill_seconds, streams.prefill());
      COHORT_ASSIGN(const double decode_seconds, streams.decode(bytes, experts));
      if (repeat == 0) continue;
      prefill.push_back(prefill_seconds);
      decode.push_back(decode_seconds);
      const double mean_positions = o.prompt_tokens + (o.generated_tokens + 1) / 2.0;
      point.bytes_per_step = bytes / o.generated_tokens + count * mean_positions * page_position_bytes;
      point.distinct_experts = experts / o.generated_tokens;
    }
    point.prefill_seconds = median(prefill);
    point.decode_seconds = median(decode);
    point.decode_spread = (std::ranges::max(decode) - std::ranges::min(decode)) / point.decode_seconds;
    report.points.push_back(point);
  }
  report.resident_bytes = peak_resident_memory();
  return report;
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
  return out;
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
