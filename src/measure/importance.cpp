#include "measure/importance.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/file.h"
#include "base/result.h"
#include "measure/token_windows.h"
#include "text/text_model.h"

namespace cohort {
namespace {

constexpr size_t kTextLimit = size_t{1} << 30;

/// Adds up in double: a long text has millions of rows.
class Collector final : public MatrixInputObserver {
 public:
  explicit Collector(bool head) : head_(head) {}

  void see(const Weight& weight, int64_t expert, std::span<const float* const> rows) override {
    if (!head_ && !weight.name.starts_with("blk.")) return;
    Sums& sums = sums_[&weight];
    const auto cols = static_cast<size_t>(weight.cols);
    if (sums.squares.empty()) {
      sums.squares.resize(static_cast<size_t>(weight.experts) * cols);
      sums.counts.resize(static_cast<size_t>(weight.experts));
    }
    sums.counts[static_cast<size_t>(expert)] += static_cast<int64_t>(rows.size());
    double* squares = sums.squares.data() + static_cast<size_t>(expert) * cols;
    for (const float* row : rows) {
      for (size_t k = 0; k < cols; ++k) squares[k] += static_cast<double>(row[k]) * static_cast<double>(row[k]);
    }
  }

  ImportanceMatrix matrix() const {
    ImportanceMatrix matrix;
    for (const auto& [weight, sums] : sums_) {
      Importance& entry = matrix.entries[weight->name + ".weight"];
      entry.cols = weight->cols;
      entry.experts = weight->experts;
      entry.square_sums.assign(sums.squares.begin(), sums.squares.end());
      entry.counts.assign(sums.counts.begin(), sums.counts.end());
    }
    return matrix;
  }

 private:
  struct Sums {
    std::vector<double> squares;
    std::vector<int64_t> counts;
  };
  bool head_;
  std::unordered_map<const Weight*, Sums> sums_;
};

Expected<std::vector<std::vector<int32_t>>> cut_windows(const ImportanceOptions& options, const Model& model,
                                                        size_t context) {
  COHORT_ASSIGN(const TextModel text, load_text_model(model));
  COHORT_ASSIGN(const std::string content, read_text_file(options.text, kTextLimit));
  COHORT_ASSIGN(const auto tokens, text.tokenizer.encode(content, {.parse_special = false}));
  for (const int32_t token : tokens) {
    if (token < 0 || token >= model.program().vocabulary) {
      return fail(ErrorCode::corrupt, "the tokenizer makes token {}; the model's embedding has {} rows", token,
                  model.program().vocabulary);
    }
  }
  std::vector<std::vector<int32_t>> windows;
  const auto prefix = text.tokenizer.prefix();
  for (size_t first = 0; first + context <= tokens.size(); first += context) {
    if (options.windows > 0 && windows.size() == static_cast<size_t>(options.windows)) break;
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(first);
    auto& window = windows.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(context));
    std::copy_n(prefix.begin(), std::min(prefix.size(), context), window.begin());
  }
  if (windows.empty()) {
    return fail(ErrorCode::invalid_argument,
                "'{}' has {} tokens; one window needs {} (choose a longer text, or a shorter window with -c)",
                options.text.string(), tokens.size(), context);
  }
  return windows;
}

void find_unrouted(ImportanceReport& report) {
  report.least_rows = 0;
  for (const auto& [name, entry] : report.matrix.entries) {
    if (!name.ends_with("ffn_down_exps.weight")) continue;
    UnroutedExperts unrouted{name, {}};
    for (int64_t e = 0; e < entry.experts; ++e) {
      const auto rows = static_cast<double>(entry.counts[static_cast<size_t>(e)]);
      if (rows == 0) {
        unrouted.experts.push_back(e);
      } else {
        report.least_rows = report.least_rows == 0 ? rows : std::min(report.least_rows, rows);
      }
    }
    if (!unrouted.experts.empty()) report.unrouted.push_back(std::move(unrouted));
  }
}

}  // namespace

Expected<ImportanceReport> collect_importance(const ImportanceOptions& options, const ProgressCallback& loading) {
  if (options.windows < 0) {
    return fail(ErrorCode::invalid_argument, "the number of windows (--windows) is {}; expected 0 or more",
                options.windows);
  }
  EngineOptions engine = options.engine;
  if (engine.device == "auto") engine.device = "cpu";  // a device does not show what enters its matrices
  COHORT_ASSIGN(const auto runner, WindowRunner::create(engine, loading));
  COHORT_ASSIGN(const auto windows, cut_windows(options, runner->model(), static_cast<size_t>(runner->context())));
  Collector collector(options.head);
  COHORT_TRY(runner->backend().observe(&collector));
  const auto start = std::chrono::steady_clock::now();
  // The head only runs over scored rows.
  const int32_t first_scored = options.head ? 0 : runner->context();
  for (size_t first = 0; first < windows.size(); first += runner->streams()) {
    if (options.cancelled && options.cancelled()) {
      return fail(ErrorCode::cancelled, "interrupted after {} of {} windows; nothing was written", first,
                  windows.size());
    }
    const size_t count = std::min(runner->streams(), windows.size() - first);
    COHORT_TRY(runner->run(std::span(windows).subspan(first, count), first_scored, 0,
                           [](size_t, int32_t, std::span<float>) {}));
    if (options.progress) options.progress(static_cast<int32_t>(first + count), static_cast<int32_t>(windows.size()));
  }
  COHORT_TRY(runner->backend().observe(nullptr));
  ImportanceReport report;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.matrix = collector.matrix();
  report.matrix.datasets = {options.text.filename().string()};
  report.matrix.chunks = static_cast<uint32_t>(windows.size());
  report.matrix.chunk_size = static_cast<uint32_t>(runner->context());
  report.model = runner->model().config().name;
  report.device = runner->backend().description();
  report.windows = static_cast<int32_t>(windows.size());
  report.context = runner->context();
  report.tokens = int64_t{report.windows} * report.context;
  find_unrouted(report);
  return report;
}

std::string to_text(const ImportanceReport& r) {
  std::string out =
      fmt::format("{} on {}: {} windows of {} tokens, {} matrices; {:.0f} tok/s\n", r.model, r.device, r.windows,
                  r.context, r.matrix.entries.size(), static_cast<double>(r.tokens) / r.seconds);
  for (const UnroutedExperts& u : r.unrouted) {
    out += fmt::format("{}: never routed to: {}\n", u.tensor, fmt::join(u.experts, ", "));
  }
  if (!r.unrouted.empty()) {
    out += "experts that were never routed to will be encoded without importance; a longer or more varied text helps\n";
  }
  if (r.least_rows > 0) out += fmt::format("every other expert saw at least {:.0f} tokens\n", r.least_rows);
  return out;
}

std::string to_json(const ImportanceReport& r) {
  nlohmann::ordered_json unrouted = nlohmann::ordered_json::object();
  for (const UnroutedExperts& u : r.unrouted) unrouted[u.tensor] = u.experts;
  const nlohmann::ordered_json out{
      {"model", r.model},     {"device", r.device},       {"windows", r.windows},
      {"context", r.context}, {"tokens", r.tokens},       {"matrices", r.matrix.entries.size()},
      {"seconds", r.seconds}, {"never_routed", unrouted}, {"least_rows_of_an_expert", r.least_rows}};
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace cohort
