#include "measure/token_windows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/result.h"
#include "engine/backend_choice.h"
#include "kv/pages.h"

namespace cohort {
namespace {

constexpr int32_t kDefaultContext = 512;
/// Logits of one step, at most: a vocabulary of 256k positions takes a megabyte a row.
constexpr int64_t kLogitBytes = int64_t{256} << 20;

}  // namespace

Expected<std::unique_ptr<WindowRunner>> WindowRunner::create(EngineOptions options, const ProgressCallback& progress) {
  COHORT_TRY(check_measured_options(options));
  const int threads = options.threads > 0 ? options.threads : default_threads();
  std::unique_ptr<WindowRunner> runner(new WindowRunner(threads));
  auto model = Model::load(options.model, options.context > 0 ? options.context : kDefaultContext);
  if (!model && options.context == 0) model = Model::load(options.model, 0);  // made for less than the default
  if (!model) return tl::unexpected<Error>(model.error());
  runner->model_ = std::move(*model);
  const Program& program = runner->model_->program();
  const int32_t pages_each = pages_for(runner->context());
  options.kv_positions = int64_t{options.max_streams} * pages_each * kPagePositions;
  COHORT_ASSIGN(OpenedBackend opened, open_backend(*runner->model_, options, progress));
  runner->backend_ = std::move(opened.backend);
  runner->pages_.resize(static_cast<size_t>(options.max_streams));
  int32_t next = 0;
  for (auto& stream : runner->pages_) {
    stream.resize(static_cast<size_t>(pages_each));
    std::iota(stream.begin(), stream.end(), next);
    next += pages_each;
  }
  const int64_t row_bytes = int64_t{program.vocabulary} * static_cast<int64_t>(sizeof(float));
  runner->rows_per_step_ = static_cast<int32_t>(std::clamp<int64_t>(kLogitBytes / row_bytes, 1, options.prefill_rows));
  return runner;
}

Expected<void> WindowRunner::run(std::span<const std::vector<int32_t>> windows, int32_t first_scored,
                                 int32_t unscored_tail, const Sink& sink) {
  const auto vocabulary = static_cast<size_t>(model_->program().vocabulary);
  const auto count = static_cast<int32_t>(windows.size());
  const int32_t rows_each = std::max(1, rows_per_step_ / std::max(1, count));
  int32_t longest = 0;
  for (const auto& window : windows) longest = std::max(longest, static_cast<int32_t>(window.size()));
  struct Scored {
    size_t window;
    int32_t position;
  };
  std::vector<Scored> scored;
  for (int32_t first = 0; first < longest; first += rows_each) {
    Batch batch;
    scored.clear();
    for (size_t w = 0; w < windows.size(); ++w) {
      const auto size = static_cast<int32_t>(windows[w].size());
      const int32_t rows = std::min(rows_each, size - first);
      if (rows <= 0) continue;
      batch.sequences.push_back({batch.rows(), rows, first, pages_[w]});
      for (int32_t position = first; position < first + rows; ++position) {
        if (position >= first_scored && position < size - unscored_tail) {
          batch.sampled_rows.push_back(batch.rows());
          scored.push_back({w, position});
        }
        batch.tokens.push_back(windows[w][static_cast<size_t>(position)]);
        batch.positions.push_back(position);
      }
    }
    logits_.resize(scored.size() * vocabulary);
    COHORT_TRY(backend_->run(batch, logits_));
    team_.run(static_cast<int64_t>(scored.size()), [&](int64_t i, int) {
      const Scored& s = scored[static_cast<size_t>(i)];
      sink(s.window, s.position, std::span(logits_).subspan(static_cast<size_t>(i) * vocabulary, vocabulary));
    });
  }
  return {};
}

double log_sum_exp(std::span<const float> logits) {
  const float largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - largest));
  return static_cast<double>(largest) + std::log(sum);
}

double negative_log_likelihood(std::span<const float> logits, int32_t token) {
  return log_sum_exp(logits) - static_cast<double>(logits[static_cast<size_t>(token)]);
}

}  // namespace cohort
