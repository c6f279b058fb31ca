// How the figures of bench serve are written down.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/escape_html.h"
#include "measure/serve_bench.h"

namespace cohort {
namespace {

double scaling(const std::vector<ServeBenchLevel>& levels, const ServeBenchLevel& level) {
  const double first = levels.front().decode_rate.median;
  return first > 0 ? level.decode_rate.median / first : 0;
}

/// 1, 2 or 5 times a power of ten, so that an axis has about five marks.
double nice_step(double range) {
  const double raw = range / 5;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

}  // namespace

std::string serve_bench_markdown(const std::vector<ServeBenchLevel>& levels) {
  std::string out =
      "| clients | ok | fail | prompt | new | TTFT mean ms | TTFT p95 ms | gap p50 ms | gap p99 ms | tok/s a request | "
      "tok/s decode (spread) | scaling | tok/s with prefill |\n"
      "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const ServeBenchLevel& l : levels) {
    fmt::format_to(
        std::back_inserter(out),
        "| {} | {} | {} | {:.0f} | {:.0f} | {:.1f} | {:.1f} | {:.2f} | {:.2f} | {:.1f} | {} | {:.2f} | {:.1f} |\n",
        l.concurrency, l.ok, l.failed, l.prompt_tokens, l.completion_tokens, l.first_token_mean * 1e3,
        l.first_token_p95 * 1e3, l.gap_p50 * 1e3, l.gap_p99 * 1e3, l.request_rate.median,
        l.decode_rate.high > 0
            ? fmt::format("{:.1f} ({:.1f}-{:.1f})", l.decode_rate.median, l.decode_rate.low, l.decode_rate.high)
            : "-",
        scaling(levels, l), l.whole_rate.median);
  }
  if (std::ranges::any_of(levels, [](const ServeBenchLevel& l) { return l.ok > 0 && l.decode_rate.high <= 0; }))
    out += "\n-: the clients never decoded all at once; with more --max-tokens they do.\n";
  return out;
}

std::string serve_bench_csv(const std::vector<ServeBenchLevel>& levels) {
  std::string out =
      "clients,ok,failed,prompt_tokens,completion_tokens,ttft_mean_s,ttft_p95_s,gap_p50_s,gap_p99_s,request_tok_s,"
      "decode_tok_s,decode_tok_s_low,decode_tok_s_high,scaling,whole_tok_s,whole_tok_s_low,whole_tok_s_high\n";
  for (const ServeBenchLevel& l : levels) {
    fmt::format_to(
        std::back_inserter(out),
        "{},{},{},{:.1f},{:.1f},{:.6f},{:.6f},{:.6f},{:.6f},{:.3f},{:.3f},{:.3f},{:.3f},{:.4f},{:.3f},{:.3f},{:.3f}\n",
        l.concurrency, l.ok, l.failed, l.prompt_tokens, l.completion_tokens, l.first_token_mean, l.first_token_p95,
        l.gap_p50, l.gap_p99, l.request_rate.median, l.decode_rate.median, l.decode_rate.low, l.decode_rate.high,
        scaling(levels, l), l.whole_rate.median, l.whole_rate.low, l.whole_rate.high);
  }
  return out;
}

std::string serve_bench_json(const std::vector<ServeBenchLevel>& levels) {
  const auto spread = [](const Spread& s) {
    return nlohmann::ordered_json{{"median", s.median}, {"low", s.low}, {"high", s.high}};
  };
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const ServeBenchLevel& l : levels) {
    out.push_back({{"clients", l.concurrency},
                   {"ok", l.ok},
                   {"failed", l.failed},
                   {"failure", l.failure},
                   {"prompt_tokens", l.prompt_tokens},
                   {"completion_tokens", l.completion_tokens},
                   {"ttft_mean_s", l.first_token_mean},
                   {"ttft_p95_s", l.first_token_p95},
                   {"gap_p50_s", l.gap_p50},
                   {"gap_p99_s", l.gap_p99},
                   {"request_tok_s", spread(l.request_rate)},
                   {"decode_tok_s", spread(l.decode_rate)},
                   {"scaling", scaling(levels, l)},
                   {"whole_tok_s", spread(l.whole_rate)}});
  }
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string serve_bench_svg(const std::vector<ServeBenchLevel>& levels, std::string_view title) {
  constexpr double kWidth = 720, kHeight = 400, kLeft = 70, kRight = 20, kTop = 50, kBottom = 50;
  double top = 1;
  for (const ServeBenchLevel& l : levels) top = std::max(top, l.decode_rate.high);
  const double step = nice_step(top);
  top = std::ceil(top / step) * step;
  // Levels stand at equal distances: they are mostly powers of two.
  const auto x = [&](size_t i) {
    return kLeft + (kWidth - kLeft - kRight) * (static_cast<double>(i) + 0.5) / static_cast<double>(levels.size());
  };
  const auto y = [&](double rate) { return kHeight - kBottom - (kHeight - kTop - kBottom) * rate / top; };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n<text x=\"{2}\" y=\"28\" font-size=\"16\">{3}</text>\n",
      kWidth, kHeight, kLeft, escape_html(title));
  auto to = std::back_inserter(out);
  for (double mark = 0; mark <= top + step / 2; mark += step) {
    fmt::format_to(to,
                   "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>"
                   "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:g}</text>\n",
                   kLeft, kWidth - kRight, y(mark), kLeft - 8, y(mark) + 4, mark);
  }
  std::string line;
  for (size_t i = 0; i < levels.size(); ++i) {
    const ServeBenchLevel& l = levels[i];
    fmt::format_to(std::back_inserter(line), "{:.1f},{:.1f} ", x(i), y(l.decode_rate.median));
    fmt::format_to(to,
                   "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"#1f7a5c\"/>"
                   "<circle cx=\"{0:.1f}\" cy=\"{3:.1f}\" r=\"4\" fill=\"#1f7a5c\"/>"
                   "<text x=\"{0:.1f}\" y=\"{4:.1f}\" text-anchor=\"middle\">{5:.0f}</text>"
                   "<text x=\"{0:.1f}\" y=\"{6}\" text-anchor=\"middle\">{7}</text>\n",
                   x(i), y(l.decode_rate.low), y(l.decode_rate.high), y(l.decode_rate.median),
                   y(l.decode_rate.median) - 10, l.decode_rate.median, kHeight - kBottom + 18, l.concurrency);
  }
  fmt::format_to(
      to,
      "<polyline points=\"{}\" fill=\"none\" stroke=\"#1f7a5c\" stroke-width=\"2\"/>\n"
      "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">clients</text>\n"
      "<text transform=\"translate(18 {}) rotate(-90)\" text-anchor=\"middle\">tokens a second, all clients</text>\n"
      "</svg>\n",
      line, (kLeft + kWidth - kRight) / 2, kHeight - 10, (kTop + kHeight - kBottom) / 2);
  return out;
}

}  // namespace cohort
