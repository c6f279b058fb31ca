#include "measure/perplexity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>

#include "base/file.h"
#include "base/result.h"
#include "measure/logits_base.h"
#include "measure/token_windows.h"
#include "text/text_model.h"

namespace cohort {
namespace {

constexpr size_t kTextLimit = size_t{1} << 30;
constexpr int32_t kLeastContext = 4;

using Window = std::vector<int32_t>;

/// What is kept of one scored position.
struct Score {
  double nll = 0;
  double base_nll = 0, kl = 0;
  bool same_top = false;
  bool resolved = false;  // the base's file tells the token's probability, not only that it is small
};

template <class Items, class ValueOf>
Estimate estimate(const Items& items, ValueOf&& value_of) {
  Estimate e;
  const auto count = static_cast<double>(items.size());
  for (const auto& item : items) e.mean += value_of(item);
  e.mean /= count;
  double squares = 0;
  for (const auto& item : items) squares += (value_of(item) - e.mean) * (value_of(item) - e.mean);
  e.error = count > 1 ? std::sqrt(squares / (count - 1) / count) : 0;
  return e;
}

double percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

DivergenceReport summarise_divergence(const std::vector<Score>& scores) {
  DivergenceReport d;
  d.kl = estimate(scores, [](const Score& s) { return s.kl; });
  d.same_top = estimate(scores, [](const Score& s) { return s.same_top ? 1.0 : 0.0; });
  const auto change = [](const Score& s) { return std::exp(-s.nll) - std::exp(-s.base_nll); };
  d.probability_change = estimate(scores, change);
  d.probability_change_rms = std::sqrt(estimate(scores, [&](const Score& s) { return change(s) * change(s); }).mean);
  std::vector<Score> resolved;
  std::ranges::copy_if(scores, std::back_inserter(resolved), [](const Score& s) { return s.resolved; });
  if (!resolved.empty()) d.nll_difference = estimate(resolved, [](const Score& s) { return s.nll - s.base_nll; });
  d.unresolved = static_cast<int64_t>(scores.size() - resolved.size());
  std::vector<double> sorted;
  sorted.reserve(scores.size());
  for (const Score& s : scores) sorted.push_back(s.kl);
  std::ranges::sort(sorted);
  d.median = percentile(sorted, 0.5);
  d.percentile_90 = percentile(sorted, 0.9);
  d.percentile_99 = percentile(sorted, 0.99);
  d.max = sorted.back();
  return d;
}

/// KL divergence of this model's prediction from the base's, and whether their favourites agree. Tokens that the base's
/// file does not resolve (below exp(-16)) add nothing.
void compare(std::span<const float> base, std::span<const float> logits, double normaliser, Score& score) {
  double kl = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto log_base = static_cast<double>(base[i]);
    if (log_base > -16) kl += std::exp(log_base) * (log_base - static_cast<double>(logits[i]) + normaliser);
  }
  score.kl = std::max(kl, 0.0);  // rounding of the file's codes may take an exact zero below it
  score.same_top = std::ranges::max_element(base) - base.begin() == std::ranges::max_element(logits) - logits.begin();
}

class Measurement {
 public:
  Measurement(const PerplexityOptions& options, WindowRunner& runner) : options_(options), runner_(runner) {}

  Expected<PerplexityReport> measure() {
    COHORT_TRY(prepare());
    if (!options_.save_base.empty()) {
      std::vector<int32_t> tokens;
      for (const Window& window : windows_) tokens.insert(tokens.end(), window.begin(), window.end());
      auto writer = LogitsBaseWriter::create(options_.save_base, context_, vocabulary_, tokens);
      if (!writer) return tl::unexpected<Error>(writer.error());
      writer_.emplace(std::move(*writer));
    }
    const auto start = std::chrono::steady_clock::now();
    scores_.resize(windows_.size() * static_cast<size_t>(scored_each_));
    for (size_t first = 0; first < windows_.size(); first += runner_.streams()) {
      if (options_.cancelled && options_.cancelled()) {
        return fail(ErrorCode::cancelled, "interrupted after {} of {} windows", first, windows_.size());
      }
      const size_t count = std::min(runner_.streams(), windows_.size() - first);
      COHORT_TRY(run(first, count));
      const auto known = std::span(scores_).first((first + count) * static_cast<size_t>(scored_each_));
      if (options_.progress) {
        options_.progress(static_cast<int32_t>(first + count), static_cast<int32_t>(windows_.size()),
                          std::exp(estimate(known, [](const Score& s) { return s.nll; }).mean));
      }
    }
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (writer_) COHORT_TRY(writer_->commit());
    return finish();
  }

 private:
  /// The windows, from the text or from the base.
  Expected<void> prepare() {
    context_ = runner_.context();
    vocabulary_ = runner_.model().program().vocabulary;
    if (context_ < kLeastContext) {
      return fail(ErrorCode::invalid_argument, "a window of {} tokens is too short; expected at least {} (-c)",
                  context_, kLeastContext);
    }
    if (options_.stride >= context_) {
      return fail(ErrorCode::invalid_argument,
                  "the stride (--stride) is {}; it must be less than the window of {} (-c)", options_.stride, context_);
    }
    COHORT_ASSIGN(const TextModel text, load_text_model(runner_.model()));
    prefix_.assign(text.tokenizer.prefix().begin(), text.tokenizer.prefix().end());
    first_scored_ = options_.stride > 0 ? context_ - 1 - options_.stride : first_scored_position(context_);
    scored_each_ = context_ - 1 - first_scored_;
    if (!options_.text.empty()) {
      COHORT_ASSIGN(const std::string content, read_text_file(options_.text, kTextLimit));
      COHORT_ASSIGN(std::vector<int32_t> tokens, text.tokenizer.encode(content, {.parse_special = false}));
      report_.text_tokens = static_cast<int64_t>(tokens.size());
      COHORT_TRY(cut(tokens));
    }
    if (!options_.kl_base.empty()) COHORT_TRY(open_base());
    for (const Window& window : windows_) {
      for (const int32_t token : window) {
        if (token < 0 || token >= vocabulary_) {
          return fail(ErrorCode::corrupt, "the tokenizer makes token {}; the model has {} rows of logits", token,
                      vocabulary_);
        }
      }
    }
    return {};
  }

  Expected<void> cut(const std::vector<int32_t>& tokens) {
    const auto context = static_cast<size_t>(context_);
    const size_t step = options_.stride > 0 ? static_cast<size_t>(options_.stride) : context;
    for (size_t first = 0; first + context <= tokens.size(); first += step) {
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(first);
      windows_.emplace_back(begin, begin + context_);
      if (options_.windows > 0 && windows_.size() == static_cast<size_t>(options_.windows)) break;
    }
    if (windows_.empty()) {
      return fail(ErrorCode::invalid_argument,
                  "'{}' has {} tokens; one window needs {} (choose a longer text, or a shorter window with -c)",
                  options_.text.string(), tokens.size(), context_);
    }
    return {};
  }

  Expected<void> open_base() {
    COHORT_ASSIGN(base_, LogitsBase::open(options_.kl_base));
    const std::string name = options_.kl_base.string();
    if (base_->vocabulary() != vocabulary_) {
      return fail(ErrorCode::invalid_argument, "'{}' was made with a vocabulary of {}; this model has {}", name,
                  base_->vocabulary(), vocabulary_);
    }
    if (base_->context() != context_) {
      return fail(ErrorCode::invalid_argument, "'{}' was made with windows of {} tokens, not {} (give -c {})", name,
                  base_->context(), context_, base_->context());
    }
    const bool have_text = !windows_.empty();
    int32_t count = base_->windows();
    if (options_.windows > 0) count = std::min(count, options_.windows);
    if (have_text) count = std::min(count, static_cast<int32_t>(windows_.size()));
    windows_.resize(static_cast<size_t>(count));
    for (int32_t w = 0; w < count; ++w) {
      Window tokens = base_->tokens(w);
      Window& window = windows_[static_cast<size_t>(w)];
      if (have_text && tokens != window) {
        return fail(ErrorCode::invalid_argument,
                    "'{}' was made from another text or tokenizer than '{}': window {} has other tokens", name,
                    options_.text.string(), w + 1);
      }
      window = std::move(tokens);
    }
    if (!have_text) report_.text_tokens = int64_t{count} * context_;
    return {};
  }

  /// A window as the model reads it: it begins as every text of this model does.
  Window as_input(const Window& window) const {
    Window input = window;
    std::copy_n(prefix_.begin(), std::min(prefix_.size(), input.size()), input.begin());
    return input;
  }

  Expected<void> run(size_t first, size_t count) {
    std::vector<Window> inputs;
    for (size_t w = first; w < first + count; ++w) inputs.push_back(as_input(windows_[w]));
    const size_t row_size = logits_row_size(vocabulary_);
    if (writer_) encoded_.assign(count * static_cast<size_t>(scored_each_) * row_size, 0);
    COHORT_TRY(runner_.run(inputs, first_scored_, 1, [&](size_t w, int32_t position, std::span<float> logits) {
      const auto index = static_cast<size_t>(position - first_scored_);
      const size_t at = w * static_cast<size_t>(scored_each_) + index;
      const auto next = static_cast<size_t>(windows_[first + w][static_cast<size_t>(position) + 1]);
      Score& score = scores_[first * static_cast<size_t>(scored_each_) + at];
      const double normaliser = log_sum_exp(logits);
      score.nll = normaliser - static_cast<double>(logits[next]);
      if (writer_) encode_logits_row(logits, std::span(encoded_).subspan(at * row_size, row_size));
      if (base_) {
        std::vector<float> base(logits.size());
        base_->read(static_cast<int32_t>(first + w), static_cast<int32_t>(index), base);
        score.base_nll = -static_cast<double>(base[next]);
        score.resolved = base[next] > *std::ranges::min_element(base);
        compare(base, logits, normaliser, score);
      }
    }));
    for (const Window& input : inputs) report_.rows += static_cast<int64_t>(input.size());
    if (writer_) COHORT_TRY(writer_->write(encoded_));
    return {};
  }

  Expected<PerplexityReport> finish() {
    report_.model = runner_.model().config().name;
    report_.device = runner_.backend().description();
    report_.context = context_;
    report_.stride = options_.stride;
    report_.windows = static_cast<int32_t>(windows_.size());
    report_.scored_tokens = static_cast<int64_t>(scores_.size());
    report_.nll = estimate(scores_, [](const Score& s) { return s.nll; });
    if (!std::isfinite(report_.nll.mean)) {
      return fail(ErrorCode::corrupt,
                  "the model's logits are not finite: its weights are damaged, or its activations "
                  "overflow");
    }
    report_.perplexity = std::exp(report_.nll.mean);
    report_.perplexity_error = report_.perplexity * report_.nll.error;
    if (base_) report_.divergence = summarise_divergence(scores_);
    return std::move(report_);
  }

  const PerplexityOptions& options_;
  WindowRunner& runner_;
  PerplexityReport report_;
  int32_t context_ = 0, vocabulary_ = 0, first_scored_ = 0, scored_each_ = 0;
  Window prefix_;
  std::vector<Window> windows_;
  std::vector<Score> scores_;  // of all windows, in order
  std::optional<LogitsBase> base_;
  std::optional<LogitsBaseWriter> writer_;
  std::vector<uint16_t> encoded_;
};

Expected<void> check_options(const PerplexityOptions& o) {
  if (o.text.empty() && o.kl_base.empty()) {
    return fail(ErrorCode::invalid_argument, "no text was given; name one with -f FILE");
  }
  if (!o.save_base.empty() && !o.kl_base.empty()) {
    return fail(ErrorCode::invalid_argument,
                "--save-base and --kl-base exclude each other: a base is compared or made");
  }
  if (o.stride < 0 || o.windows < 0) {
    return fail(ErrorCode::invalid_argument,
                "the stride (--stride) is {} and the number of windows (--windows) {}; "
                "expected 0 or more",
                o.stride, o.windows);
  }
  if (o.stride > 0 && (!o.save_base.empty() || !o.kl_base.empty())) {
    return fail(ErrorCode::invalid_argument,
                "base files hold the second half of windows that lie side by side; leave out --stride");
  }
  return {};
}

}  // namespace

Expected<PerplexityReport> measure_perplexity(const PerplexityOptions& options, const ProgressCallback& loading) {
  COHORT_TRY(check_options(options));
  EngineOptions engine = options.engine;
  if (!options.kl_base.empty() && engine.context == 0) {
    COHORT_ASSIGN(const LogitsBase base, LogitsBase::open(options.kl_base));
    engine.context = base.context();
  }
  COHORT_ASSIGN(const auto runner, WindowRunner::create(engine, loading));
  if (runner->model().config().diffusion.canvas_length > 0) {
    return fail(ErrorCode::unsupported,
                "{} denoises tokens together (block diffusion): it has no probability of the next token to measure",
                engine.model.string());
  }
  return Measurement(options, *runner).measure();
}

}  // namespace cohort
