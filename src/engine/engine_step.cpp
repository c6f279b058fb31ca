// schedule -> run -> sample. The plain loop; whatever overlaps later must equal it.
#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "base/result.h"
#include "engine/engine_impl.h"
#include "engine/sampler.h"

namespace cohort {
namespace {

/// Of the `rows` rows that a sequence has in a step, guesses included, so many of the last ones give a token: none
/// while tokens of its own are missing.
int32_t sampled_rows(const Sequence& s, int32_t rows) {
  const auto guesses = static_cast<int32_t>(s.guesses.size());
  return rows == 0 || rows - guesses < s.missing() ? 0 : 1 + guesses;
}

}  // namespace

Batch Engine::Impl::make_batch(std::span<const int32_t> rows) const {
  Batch batch;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0) continue;
    const Sequence& s = roster->running()[i];
    batch.sequences.push_back({batch.rows(), rows[i], s.cached, s.pages});
    for (int32_t r = 0; r < rows[i]; ++r) {
      const int32_t position = s.cached + r;
      const auto guess = position - s.size();
      batch.tokens.push_back(guess < 0 ? s.tokens[static_cast<size_t>(position)]
                                       : s.guesses[static_cast<size_t>(guess)]);
      batch.positions.push_back(position);
    }
    for (int32_t r = batch.rows() - sampled_rows(s, rows[i]); r < batch.rows(); ++r) batch.sampled_rows.push_back(r);
  }
  return batch;
}

/// Of the sampled rows of make_batch(); empty when none of them has one.
std::vector<DrawRule> Engine::Impl::draw_rules(std::span<const int32_t> rows) const {
  std::vector<DrawRule> rules;
  bool any = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Sequence& s = roster->running()[i];
    for (int32_t k = 0; k < sampled_rows(s, rows[i]); ++k) {
      const auto position = static_cast<uint32_t>(s.size() + k);
      rules.push_back(s.constraint == nullptr ? draw_rule(s.request.sampling, position, vocabulary()) : DrawRule{});
      any = any || rules.back().temperature > 0;
    }
  }
  if (!any) rules.clear();
  return rules;
}

Expected<StepStats> Engine::Impl::run(const Batch& batch, std::span<const int32_t> rows) {
  const size_t sampled = batch.sampled_rows.size();
  if (options.batching && backend->top_logits() > 0) {
    logits.clear();
    top.resize(sampled * static_cast<size_t>(backend->top_logits()));
    draws.assign(sampled, {});
    return backend->run_top(batch, draw_rules(rows), top, draws);
  }
  top.clear();
  return run_whole_logits(batch);
}

Expected<StepStats> Engine::Impl::run_whole_logits(const Batch& batch) {
  const auto width = static_cast<size_t>(vocabulary());
  logits.resize(batch.sampled_rows.size() * width);
  if (options.batching) return backend->run(batch, logits);
  return run_one_by_one(batch, [&](const Batch& one, size_t, size_t sampled) {
    return backend->run(one, std::span(logits).subspan(sampled * width, one.sampled_rows.size() * width));
  });
}

/// The off-switch: every sequence's rows as a step of their own. Same bytes, by docs/NUMERICS.md.
Expected<StepStats> Engine::Impl::run_one_by_one(const Batch& batch, const RunAlone& run) {
  StepStats total;
  size_t sampled = 0;
  for (size_t sequence = 0; sequence < batch.sequences.size(); ++sequence) {
    const SequenceRows& s = batch.sequences[sequence];
    Batch one;
    const auto first = batch.tokens.begin() + s.first_row;
    one.tokens.assign(first, first + s.rows);
    const auto position = batch.positions.begin() + s.first_row;
    one.positions.assign(position, position + s.rows);
    one.sequences.push_back({0, s.rows, s.first_position, s.pages, s.canvas, s.mixtures});
    const size_t before = sampled;
    while (sampled < batch.sampled_rows.size() && batch.sampled_rows[sampled] < s.first_row + s.rows) {
      one.sampled_rows.push_back(batch.sampled_rows[sampled++] - s.first_row);
    }
    COHORT_ASSIGN(StepStats stats, run(one, sequence, before));
    total.seconds += stats.seconds;
    total.rows += stats.rows;
    total.distinct_experts += stats.distinct_experts;
    total.bytes += stats.bytes;
    total.routes.resize(stats.routes.size());
    std::ranges::transform(total.routes, stats.routes, total.routes.begin(), std::plus<>());
  }
  return total;
}

/// The next token of a sequence whose logits are `row`.
Expected<Sample> Engine::Impl::sample_one(Sequence& s, std::span<const float> row) const {
  const auto position = static_cast<uint32_t>(s.size());
  if (s.constraint == nullptr) return sample(row, s.request.sampling, s.tokens, position);
  std::vector<uint64_t> mask((row.size() + 63) / 64);
  COHORT_TRY(s.constraint->allowed(mask));
  for (const int32_t token : s.request.end_tokens) {
    if (token < 0 || token >= vocabulary()) continue;
    const uint64_t bit = uint64_t{1} << (static_cast<unsigned>(token) % 64);
    uint64_t& word = mask[static_cast<size_t>(token) / 64];
    word = s.constraint->may_end() ? word | bit : word & ~bit;
  }
  return sample(row, s.request.sampling, s.tokens, position, mask);
}

/// The next tokens of each of `sequences` (indices of running ones whose last row has run). Each depends on its own
/// rows alone, so they are spread over threads.
std::vector<Window> Engine::Impl::sample_all(std::span<const size_t> sequences) {
  std::vector<Window> windows(sequences.size());
  size_t row = 0;
  for (size_t k = 0; k < sequences.size(); ++k) {
    windows[k].first_row = row;
    row += 1 + roster->running()[sequences[k]].guesses.size();
  }
  samplers->run(static_cast<int64_t>(sequences.size()), [&](int64_t k, int) {
    const auto at = static_cast<size_t>(k);
    sample_window(roster->running()[sequences[at]], windows[at]);
  });
  return windows;
}

/// Tokens up to the first that was guessed wrong: the rows behind it saw a token that is not the sequence's.
void Engine::Impl::sample_window(Sequence& s, Window& window) {
  for (size_t k = 0;; ++k) {
    TokenEvent event = advance(s, sample_row(s, window.first_row + k));
    event.guessed = k > 0;
    const bool goes_on =
        event.finish == FinishReason::none && k < s.guesses.size() && s.guesses[k] == event.sample.token;
    window.events.push_back(std::move(event));
    if (!goes_on) return;
  }
}

/// The next token of the sequence that has the sampled row `row`.
Expected<Sample> Engine::Impl::sample_row(Sequence& s, size_t row) {
  const auto width = static_cast<size_t>(vocabulary());
  if (top.empty()) return sample_one(s, std::span(logits).subspan(row * width, width));
  if (s.constraint == nullptr) {
    const auto count = static_cast<size_t>(backend->top_logits());
    auto chosen = sample_top(std::span(top).subspan(row * count, count), draws[row], s.request.sampling,
                             static_cast<uint32_t>(s.size()));
    if (chosen) return std::move(*chosen);
  }
  std::vector<float> all(width);
  COHORT_TRY(backend->read_logits(static_cast<int32_t>(row), all));
  return sample_one(s, all);
}

/// The rows of right guesses hold the sequence's own tokens now. Returns how many there are.
int64_t Engine::Impl::settle_guesses(size_t running, const Window& window) {
  Sequence& s = roster->running()[running];
  const auto right = static_cast<int32_t>(window.events.size()) - 1;
  // A guess behind the sequence's end was neither right nor wrong.
  const bool ended = window.events.back().finish != FinishReason::none;
  s.hits.observe(ended ? right : static_cast<int32_t>(s.guesses.size()), right);
  if (right > 0) roster->ran(running, right);
  return right;
}

/// Adds the next token to a sequence.
TokenEvent Engine::Impl::advance(Sequence& s, Expected<Sample> sampled) {
  TokenEvent event;
  event.sequence = s.id;
  event.index = s.generated();
  event.reused = s.reused;
  if (!sampled) {
    event.finish = FinishReason::failed;
    event.error = sampled.error();
    return event;
  }
  event.sample = std::move(*sampled);
  s.tokens.push_back(event.sample.token);
  if (std::ranges::find(s.request.end_tokens, event.sample.token) != s.request.end_tokens.end()) {
    event.finish = FinishReason::end_token;
    return event;
  }
  if (s.constraint != nullptr) s.constraint->advance(event.sample.token);
  if (s.constraint != nullptr && s.constraint->must_end()) {
    event.finish = FinishReason::complete;
  } else if (s.generated() >= s.request.max_tokens) {
    event.finish = FinishReason::length;
  } else if (s.size() >= model->context()) {
    event.finish = FinishReason::context;
  }
  return event;
}

Expected<StepReport> Engine::step() {
  const auto start = std::chrono::steady_clock::now();
  Impl& e = *impl_;
  if (e.rules.canvas_length > 0) return e.canvas_step();
  StepReport report;
  report.preemptions = -e.roster->preemptions();
  if (e.speculator) COHORT_TRY(e.speculator->guess(e.roster->running(), e.model->context()));
  const auto ready = std::chrono::steady_clock::now();
  const std::vector<int32_t> rows = e.roster->plan(e.budget);
  report.preemptions += e.roster->preemptions();
  const Batch batch = e.make_batch(rows);
  e.event_rows.clear();
  if (batch.rows() == 0) return report;
  COHORT_ASSIGN(StepStats stats, e.run(batch, rows));
  report.rows = batch.rows();
  report.distinct_experts = stats.distinct_experts;
  report.bytes = stats.bytes;
  report.routes = std::move(stats.routes);

  int64_t decoding = 0;
  std::vector<size_t> sampled;  // running sequences, in the order of their logits
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0) continue;
    Sequence& s = e.roster->running()[i];
    decoding += s.decoding() ? 1 : 0;
    (s.decoding() ? report.decode_rows : report.prefill_rows) += rows[i];
    e.roster->ran(i, rows[i] - static_cast<int32_t>(s.guesses.size()));
    if (s.missing() == 0) sampled.push_back(i);
  }
  std::vector<Window> windows = e.sample_all(sampled);
  std::vector<SequenceId> ended;
  for (size_t k = 0; k < sampled.size(); ++k) {
    Sequence& s = e.roster->running()[sampled[k]];
    if (windows[k].events.front().index == 0) {
      report.prompt_tokens += s.prompt_size();
      report.reused_tokens += s.reused;
    }
    report.right_guesses += e.settle_guesses(sampled[k], windows[k]);
    report.guesses += static_cast<int64_t>(std::exchange(s.guesses, {}).size());
    if (windows[k].events.back().finish != FinishReason::none) ended.push_back(s.id);
    for (size_t r = 0; r < windows[k].events.size(); ++r) {
      e.event_rows.push_back(windows[k].first_row + r);
      report.events.push_back(std::move(windows[k].events[r]));
    }
  }
  for (const SequenceId id : ended) cancel(id);
  const auto now = std::chrono::steady_clock::now();
  report.seconds = std::chrono::duration<double>(now - start).count();
  e.budget.observe(report.prefill_rows, decoding, report.seconds);
  if (e.speculator && report.prefill_rows == 0)
    e.speculator->observe_step(report.decode_rows, std::chrono::duration<double>(now - ready).count());
  return report;
}

}  // namespace cohort
