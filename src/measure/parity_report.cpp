#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "measure/parity.h"
#include "numerics/version.h"

namespace cohort {

std::string to_text(const ParityReport& r) {
  std::string out = fmt::format("{} {}, {}; numerics version {}; {} streams of {} tokens\n", r.model, r.type, r.device,
                                numerics::kNumericsVersion, r.streams, r.tokens);
  size_t width = 0;
  for (const ParityVariant& v : r.variants) width = std::max(width, v.name.size());
  for (const ParityVariant& v : r.variants) {
    out += fmt::format("  {:<{}}  {:6} rows  {}\n", v.name, width, v.rows,
                       v.differing == 0 ? "equal" : fmt::format("{} DIFFER; first: {}", v.differing, v.first));
  }
  out += r.equal() ? "every row has the same bits in every way\n" : "NOT EQUAL\n";
  if (r.canvas > 0) {
    out += fmt::format("rows of prompts only: canvases ({} tokens that are denoised together) are not compared here\n",
                       r.canvas);
  }
  return out;
}

std::string to_json(const ParityReport& r) {
  nlohmann::ordered_json out{
      {"model", r.model},     {"type", r.type},     {"device", r.device}, {"numerics", numerics::kNumericsVersion},
      {"streams", r.streams}, {"tokens", r.tokens}, {"equal", r.equal()}};
  if (r.canvas > 0) out["canvases_compared"] = false;
  for (const ParityVariant& v : r.variants)
    out["variants"].push_back(
        {{"name", v.name}, {"rows", v.rows}, {"differing", v.differing}, {"first_difference", v.first}});
  return out.dump(2) + "\n";
}

std::string to_text(const ExpertParityReport& r) {
  const ExpertParityOptions& o = r.options;
  std::string out = fmt::format("{} experts of {}, top {}, hidden {}; numerics version {}\n", o.experts, o.inner,
                                o.top_k, o.hidden, numerics::kNumericsVersion);
  out +=
      "| gate and up | down      |   values | differing | against float64 "
      "|\n|:------------|:----------|---------:|----------:|----------------:|\n";
  for (const ExpertParityPair& p : r.pairs) {
    out += fmt::format("| {:<11} | {:<9} | {:8} | {:9} | {:>15} |\n", p.gate_up, p.down, p.values, p.differing,
                       fmt::format("{:.3f}%{}", 100 * p.error, p.error < kExpertErrorLimit ? "" : " TOO MUCH"));
  }
  for (const ExpertParityPair& p : r.pairs) {
    if (p.differing > 0) out += fmt::format("{} with {}: first difference: {}\n", p.gate_up, p.down, p.first);
  }
  out += r.equal() ? "every value has the reference's bits\n" : "NOT EQUAL\n";
  return out;
}

std::string to_json(const ExpertParityReport& r) {
  const ExpertParityOptions& o = r.options;
  nlohmann::ordered_json out{{"numerics", numerics::kNumericsVersion},
                             {"hidden", o.hidden},
                             {"inter", o.inner},
                             {"experts", o.experts},
                             {"top_k", o.top_k},
                             {"equal", r.equal()}};
  for (const ExpertParityPair& p : r.pairs) {
    out["pairs"].push_back({{"gate_up", p.gate_up},
                            {"down", p.down},
                            {"values", p.values},
                            {"differing", p.differing},
                            {"first_difference", p.first},
                            {"error_against_float64", p.error}});
  }
  return out.dump(2) + "\n";
}

}  // namespace cohort
