// A profile as a page: what a reader compares first (which operations a step's time is made of, and how far each is
// from its limit) as bars, the figures below them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "base/escape_html.h"
#include "measure/profile.h"

namespace cohort {
namespace {

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Cohort profile</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
.bar { display: flex; height: 1.6rem; background: #eee; } .bar i { display: block; min-width: 1px; }
.key span { display: inline-block; margin-right: 1rem; white-space: nowrap; } .key i { display: inline-block; width: .8em; height: .8em; margin-right: .3em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; } td, th { padding: .15rem .6rem; text-align: right; white-space: nowrap; }
td:first-child, th:first-child { text-align: left; } tr + tr { border-top: 1px solid #ddd; }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #191919; } .bar { background: #333; } tr + tr { border-color: #444; } }
</style></head><body>
)";

constexpr std::array<std::string_view, 8> kColours{"#1f7a5c", "#c8672a", "#3b6fb5", "#b8952b",
                                                   "#7a4fa0", "#5a9a3a", "#b0455f", "#4a9aa8"};
constexpr const char* kWaiting = "(waiting)";
constexpr const char* kPlanning = "(planning)";

double per_second(double amount, double seconds) {
  return seconds > 0 ? amount / seconds : 0;
}

/// What takes less of a step is too narrow to be seen in its bar.
constexpr double kKeyShare = 0.005;

/// An operation has one colour in every bar.
using Colours = std::map<std::string, std::string_view>;

Colours colours_of(const ProfileReport& r) {
  Colours colours{{kWaiting, "#999"}, {kPlanning, "#666"}};
  for (const ProfilePoint& p : r.points) {
    for (const ProfileEntry& e : p.operations)
      colours.try_emplace(e.name, kColours[(colours.size() - 2) % kColours.size()]);
  }
  return colours;
}

void put_slice(std::string& out, std::string_view name, std::string_view colour, double seconds, double whole) {
  const double share = 100 * per_second(seconds, whole);
  fmt::format_to(std::back_inserter(out),
                 "<i style=\"width:{:.2f}%;background:{}\" title=\"{}: {:.3f} ms, {:.1f}%\"></i>", share, colour,
                 escape_html(name), seconds * 1e3, share);
}

void put_key(std::string& out, std::string_view name, std::string_view colour) {
  fmt::format_to(std::back_inserter(out), "<span><i style=\"background:{}\"></i>{}</span>", colour, escape_html(name));
}

void put_row(std::string& out, const ProfileEntry& e, const ProfilePoint& p) {
  fmt::format_to(
      std::back_inserter(out),
      "<tr><td>{}</td><td>{}</td><td>{:.3f}</td><td>{:.1f}%</td><td>{:.2f}</td><td>{:.1f}</td><td>{:.1f}"
      "</td><td>{}</td><td>{}</td></tr>\n",
      escape_html(e.name), escape_html(e.kind), e.seconds * 1e3, 100 * per_second(e.seconds, p.seconds), e.bytes / 1e6,
      per_second(e.bytes, e.seconds) / 1e9, per_second(e.operations, e.seconds) / 1e9,
      e.roofline_seconds > 0 && e.seconds > 0 ? fmt::format("{:.0f}%", 100 * e.roofline_seconds / e.seconds) : "-",
      e.jobs);
}

/// Bar and key of a point: shares of `whole`.
void put_bar(std::string& out, const std::vector<std::pair<std::string, double>>& parts, const Colours& colours,
             double whole) {
  out += "<div class=\"bar\">";
  for (const auto& [name, seconds] : parts) put_slice(out, name, colours.at(name), seconds, whole);
  out += "</div>\n<p class=\"key\">";
  for (const auto& [name, seconds] : parts) {
    if (seconds > kKeyShare * whole) put_key(out, name, colours.at(name));
  }
  out += "</p>\n";
}

void put_title(std::string& out, const ProfilePoint& p, bool on_device) {
  fmt::format_to(std::back_inserter(out), "<h2>{}: {:.3f} ms a step, {:.1f} tok/s, {:.0f}% of roofline",
                 p.prefill ? fmt::format("Prefill, {:.0f} rows a step", p.rows)
                           : fmt::format("{} stream{}", p.streams, p.streams == 1 ? "" : "s"),
                 p.seconds * 1e3, per_second(p.rows, p.seconds), 100 * per_second(p.roofline_seconds, p.seconds));
  if (!on_device) fmt::format_to(std::back_inserter(out), ", cores {:.0f}% busy", 100 * p.core_use);
  out += "</h2>\n";
}

/// The kernels of a step, each kind timed alone: they overlap in the step, so their sum is the bar.
void put_device_point(std::string& out, const ProfilePoint& p, const Colours& colours) {
  double sum = 0;
  std::vector<std::pair<std::string, double>> parts;
  for (const ProfileEntry& e : p.operations) {
    sum += e.seconds;
    parts.emplace_back(e.name, e.seconds);
  }
  put_bar(out, parts, colours, sum);
  fmt::format_to(std::back_inserter(out),
                 "<p>{}</p>\n<div class=\"wide\"><table><tr><th>kernels</th><th>ms alone</th><th>launches</th>"
                 "<th>\u00b5s each</th></tr>\n",
                 escape_html(p.explanation));
  for (const ProfileEntry& e : p.operations) {
    fmt::format_to(std::back_inserter(out), "<tr><td>{}</td><td>{:.3f}</td><td>{}</td><td>{:.1f}</td></tr>\n",
                   escape_html(e.name), e.seconds * 1e3, e.jobs,
                   per_second(e.seconds * 1e6, static_cast<double>(e.jobs)));
  }
  out += "</table></div>\n";
}

void put_point(std::string& out, const ProfilePoint& p, const Colours& colours) {
  std::vector<std::pair<std::string, double>> parts;
  for (const ProfileEntry& e : p.operations) parts.emplace_back(e.name, e.seconds);
  parts.emplace_back(kWaiting, p.wait_seconds);
  parts.emplace_back(kPlanning, p.serial_seconds);
  put_bar(out, parts, colours, p.seconds);
  fmt::format_to(std::back_inserter(out),
                 "<p>{}</p>\n<div class=\"wide\"><table><tr><th>operation</th><th>kind</th><th>ms a step</th>"
                 "<th>share</th><th>MB</th><th>GB/s</th><th>Gop/s</th><th>roofline</th><th>jobs</th></tr>\n",
                 escape_html(p.explanation));
  for (const ProfileEntry& e : p.operations) put_row(out, e, p);
  put_row(out, {kWaiting, "barrier", p.wait_seconds}, p);
  put_row(out, {kPlanning, "serial", p.serial_seconds}, p);
  out += "</table></div>\n";
}

/// A column for each point; the longer a layer takes beside the longest of its column, the darker its cell.
void put_layers(std::string& out, const ProfileReport& r) {
  out += "<h2>Layers, ms a step (% of roofline)</h2>\n<div class=\"wide\"><table><tr><th>layer</th>";
  std::vector<double> longest;
  for (const ProfilePoint& p : r.points) {
    out += p.prefill ? "<th>prefill</th>" : fmt::format("<th>B={}</th>", p.streams);
    double most = 0;
    for (const ProfileEntry& e : p.layers) most = std::max(most, e.seconds);
    longest.push_back(most);
  }
  out += "</tr>\n";
  for (size_t layer = 0; layer < r.points.front().layers.size(); ++layer) {
    fmt::format_to(std::back_inserter(out), "<tr><td>{}</td>", escape_html(r.points.front().layers[layer].name));
    for (size_t i = 0; i < r.points.size(); ++i) {
      const ProfileEntry& e = r.points[i].layers[layer];
      fmt::format_to(std::back_inserter(out), "<td style=\"background:rgba(31,122,92,{:.2f})\">{:.3f} ({:.0f}%)</td>",
                     0.6 * per_second(e.seconds, longest[i]), e.seconds * 1e3,
                     100 * per_second(e.roofline_seconds, e.seconds));
    }
    out += "</tr>\n";
  }
  out += "</table></div>\n";
}

}  // namespace

std::string to_html(const ProfileReport& r) {
  std::string out(kHead);
  const bool on_device = r.threads == 0;
  fmt::format_to(std::back_inserter(out),
                 "<h1>{} {}</h1>\n<p>{}; {} prompt tokens, {} decode steps. It reads {:.1f} GB/s", escape_html(r.model),
                 escape_html(r.type), escape_html(r.device), r.prompt_tokens, r.steps, r.bandwidth / 1e9);
  if (!on_device) {
    fmt::format_to(std::back_inserter(out), " and does {:.2f} int8 and {:.2f} f32 TOP/s", r.int8_peak / 1e12,
                   r.float_peak / 1e12);
  }
  out += ".</p>\n";
  const Colours colours = colours_of(r);
  for (const ProfilePoint& p : r.points) {
    put_title(out, p, on_device);
    on_device ? put_device_point(out, p, colours) : put_point(out, p, colours);
  }
  if (!on_device && !r.points.empty()) put_layers(out, r);
  return out + "</body></html>\n";
}

}  // namespace cohort
