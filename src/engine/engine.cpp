// schedule -> run -> sample. The plain loop; whatever overlaps later must equal it.
#include "cohort/engine.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "base/counted.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "engine/backend_choice.h"
#include "engine/limits.h"
#include "engine/roster.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "kernels/backend.h"
#include "kv/pages.h"
#include "models/model.h"

namespace cohort {

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::none:
      return "none";
    case FinishReason::end_token:
    case FinishReason::complete:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::context:
      return "context";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::failed:
      break;
  }
  return "failed";
}

namespace {
/// A step samples at most a few dozen rows; more threads would find nothing to do.
constexpr int kSamplerThreads = 16;
}  // namespace

struct Engine::Impl {
  EngineOptions options;
  std::unique_ptr<Model> model;
  std::unique_ptr<Backend> backend;
  std::string note;                          // about the choice of the device
  std::unique_ptr<ThreadTeam> own_samplers;  // when the backend has no threads to lend
  ThreadTeam* samplers = nullptr;
  std::unique_ptr<Roster> roster;
  PrefillBudget budget{1, 0};
  size_t page_bytes = 0;
  SequenceId next_id = 1;
  std::vector<float> logits;
  std::vector<TopLogit> top;  // instead of them, where the backend gives the largest only
  std::vector<Draw> draws;    // beside those, for rows whose rule asks for one

  int32_t vocabulary() const { return model->program().vocabulary; }
  Batch make_batch(std::span<const int32_t> rows) const;
  std::vector<DrawRule> draw_rules(std::span<const int32_t> rows) const;
  Expected<StepStats> run(const Batch& batch, std::span<const int32_t> rows);
  Expected<StepStats> run_one_by_one(const Batch& batch);
  std::vector<Expected<Sample>> sample_all(std::span<const size_t> sequences);
  Expected<Sample> sample_one(Sequence& sequence, std::span<const float> row) const;
  Expected<Sample> sample_row(Sequence& sequence, size_t row);
  TokenEvent advance(Sequence& sequence, Expected<Sample> sampled);
};

Batch Engine::Impl::make_batch(std::span<const int32_t> rows) const {
  Batch batch;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0) continue;
    const Sequence& s = roster->running()[i];
    batch.sequences.push_back({batch.rows(), rows[i], s.cached, s.pages});
    for (int32_t r = 0; r < rows[i]; ++r) {
      const int32_t position = s.cached + r;
      batch.tokens.push_back(s.tokens[static_cast<size_t>(position)]);
      batch.positions.push_back(position);
    }
    if (rows[i] == s.missing()) batch.sampled_rows.push_back(batch.rows() - 1);
  }
  return batch;
}

/// Of the sampled rows of make_batch(); empty when none of them has one.
std::vector<DrawRule> Engine::Impl::draw_rules(std::span<const int32_t> rows) const {
  std::vector<DrawRule> rules;
  bool any = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Sequence& s = roster->running()[i];
    if (rows[i] == 0 || rows[i] != s.missing()) continue;
    const auto position = static_cast<uint32_t>(s.size());
    rules.push_back(s.constraint == nullptr ? draw_rule(s.request.sampling, position, vocabulary()) : DrawRule{});
    any = any || rules.back().temperature > 0;
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
  logits.resize(sampled * static_cast<size_t>(vocabulary()));
  return options.batching ? backend->run(batch, logits) : run_one_by_one(batch);
}

/// The off-switch: every sequence's rows as a step of their own. Same bytes, by docs/NUMERICS.md.
Expected<StepStats> Engine::Impl::run_one_by_one(const Batch& batch) {
  StepStats total;
  size_t sampled = 0;
  for (const SequenceRows& s : batch.sequences) {
    Batch one;
    const auto first = batch.tokens.begin() + s.first_row;
    one.tokens.assign(first, first + s.rows);
    const auto position = batch.positions.begin() + s.first_row;
    one.positions.assign(position, position + s.rows);
    one.sequences.push_back({0, s.rows, s.first_position, s.pages});
    const size_t before = sampled;
    while (sampled < batch.sampled_rows.size() && batch.sampled_rows[sampled] < s.first_row + s.rows) {
      one.sampled_rows.push_back(batch.sampled_rows[sampled++] - s.first_row);
    }
    const auto v = static_cast<size_t>(vocabulary());
    COHORT_ASSIGN(StepStats stats, backend->run(one, std::span(logits).subspan(before * v, (sampled - before) * v)));
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

/// The next token of each of `sequences` (indices of running ones whose last row has run). Each depends on its own row
/// alone, so they are spread over threads.
std::vector<Expected<Sample>> Engine::Impl::sample_all(std::span<const size_t> sequences) {
  std::vector<Expected<Sample>> samples(sequences.size());
  samplers->run(static_cast<int64_t>(sequences.size()), [&](int64_t k, int) {
    const auto row = static_cast<size_t>(k);
    samples[row] = sample_row(roster->running()[sequences[row]], row);
  });
  return samples;
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

Expected<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options, const ProgressCallback& progress) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  COHORT_TRY(check_options(options));
  COHORT_ASSIGN(impl->model, Model::load(options.model, options.context));
  const Program& program = impl->model->program();
  COHORT_ASSIGN(const TensorType kv_type, parse_kv_type(options.kv_type));
  impl->page_bytes = KvCache::page_bytes(program.cache_layers, kv_type);
  COHORT_ASSIGN(OpenedBackend opened, open_backend(*impl->model, options, progress));
  impl->backend = std::move(opened.backend);
  impl->note = std::move(opened.note);
  impl->roster =
      std::make_unique<Roster>(options.max_streams, opened.pages, options.prefix_cache, options.priority_aging_s);
  impl->budget = PrefillBudget(options.prefill_rows, options.prefill_stall_ms / 1000);
  impl->samplers = impl->backend->team();
  if (impl->samplers == nullptr) {
    const int threads = options.threads > 0 ? options.threads : default_threads();
    impl->own_samplers = std::make_unique<ThreadTeam>(std::clamp(threads, 1, kSamplerThreads));
    impl->samplers = impl->own_samplers.get();
  }
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Expected<void> Engine::check(const SequenceRequest& request) const {
  const int32_t vocabulary = impl_->vocabulary();
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) return fail(ErrorCode::invalid_argument, "the prompt is empty; give at least one token");
  if (request.max_tokens < 1)
    return fail(ErrorCode::invalid_argument, "max_tokens is {}; expected at least 1", request.max_tokens);
  if (request.priority < -kMaxPriority || request.priority > kMaxPriority) {
    return fail(ErrorCode::invalid_argument, "priority is {}; expected {} to {}", request.priority, -kMaxPriority,
                kMaxPriority);
  }
  if (prompt + 1 > impl_->model->context()) {
    return fail(ErrorCode::capacity,
                "the prompt has {}; the context of {} positions leaves room for at most {}: shorten it; {}",
                counted(prompt, "token"), impl_->model->context(), impl_->model->context() - 1,
                impl_->model->longer_context());
  }
  const int64_t positions = std::min<int64_t>(prompt + request.max_tokens, impl_->model->context());
  if (pages_for(positions) > impl_->roster->pages().total()) {
    return fail(ErrorCode::capacity,
                "{} and {} new ones need {} of {} positions; there are {} (ask for fewer, or raise --kv-positions)",
                counted(prompt, "prompt token"), request.max_tokens, counted(pages_for(positions), "KV page"),
                kPagePositions, impl_->roster->pages().total());
  }
  for (const int32_t token : request.prompt) {
    if (token < 0 || token >= vocabulary) {
      return fail(ErrorCode::invalid_argument, "the prompt holds token {}; the vocabulary has 0 to {}", token,
                  vocabulary - 1);
    }
  }
  return cohort::check(request.sampling, vocabulary);
}

Expected<SequenceId> Engine::submit(SequenceRequest request) {
  COHORT_TRY(check(request));
  Sequence sequence;
  sequence.id = impl_->next_id++;
  sequence.arrival = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  sequence.tokens = request.prompt;
  if (request.constraint != nullptr) sequence.constraint = request.constraint->begin();
  sequence.request = std::move(request);
  impl_->roster->add(std::move(sequence));
  return impl_->next_id - 1;
}

void Engine::cancel(SequenceId id) {
  impl_->roster->remove(id);
}

Expected<StepReport> Engine::step() {
  const auto start = std::chrono::steady_clock::now();
  Impl& e = *impl_;
  StepReport report;
  report.preemptions = -e.roster->preemptions();
  const std::vector<int32_t> rows = e.roster->plan(e.budget);
  report.preemptions += e.roster->preemptions();
  const Batch batch = e.make_batch(rows);
  if (batch.rows() == 0) return report;
  COHORT_ASSIGN(StepStats stats, e.run(batch, rows));
  report.rows = batch.rows();
  report.distinct_experts = stats.distinct_experts;
  report.bytes = stats.bytes;
  report.routes = std::move(stats.routes);

  std::vector<size_t> sampled;  // running sequences, in the order of their logits
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0) continue;
    Sequence& s = e.roster->running()[i];
    (s.decoding() ? report.decode_rows : report.prefill_rows) += rows[i];
    e.roster->ran(i, rows[i]);
    if (s.missing() == 0) sampled.push_back(i);
  }
  std::vector<Expected<Sample>> samples = e.sample_all(sampled);
  std::vector<SequenceId> ended;
  for (size_t k = 0; k < sampled.size(); ++k) {
    Sequence& s = e.roster->running()[sampled[k]];
    if (s.generated() == 0) {
      report.prompt_tokens += s.prompt_size();
      report.reused_tokens += s.reused;
    }
    report.events.push_back(e.advance(s, std::move(samples[k])));
    if (report.events.back().finish != FinishReason::none) ended.push_back(s.id);
  }
  for (const SequenceId id : ended) cancel(id);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  e.budget.observe(report.prefill_rows, report.decode_rows, report.seconds);
  return report;
}

bool Engine::idle() const {
  return waiting() == 0 && running() == 0;
}
size_t Engine::waiting() const {
  return impl_->roster->waiting();
}
const std::map<int32_t, size_t>& Engine::waiting_by_priority() const {
  return impl_->roster->waiting_by_priority();
}
size_t Engine::running() const {
  return impl_->roster->running().size();
}
std::span<const float> Engine::last_logits() const {
  return impl_->logits;
}
const Model& Engine::model() const {
  return *impl_->model;
}
double Engine::device_bandwidth() const {
  return impl_->backend->read_bandwidth();
}

std::string Engine::description() const {
  return impl_->backend->description() + (impl_->note.empty() ? "" : " (" + impl_->note + ")");
}

int64_t Engine::kv_positions() const {
  return int64_t{impl_->roster->pages().total()} * kPagePositions;
}

std::vector<SequenceStatus> Engine::sequences() const {
  std::vector<SequenceStatus> out;
  for (const Sequence& s : impl_->roster->running()) {
    out.push_back({s.id, s.prompt_size(), s.generated(), s.cached, static_cast<int32_t>(s.pages.size()), s.decoding(),
                   s.request.priority});
  }
  return out;
}

Capacity Engine::capacity() const {
  const Impl& e = *impl_;
  const PagePool& pages = e.roster->pages();
  Capacity c;
  c.context = e.model->context();
  c.max_streams = e.options.max_streams;
  c.pages = pages.total();
  c.free_pages = pages.available() + pages.reusable();
  c.reusable_pages = pages.reusable();
  c.page_positions = kPagePositions;
  c.page_bytes = e.page_bytes;
  c.weight_bytes = e.model->weight_bytes();
  return c;
}

}  // namespace cohort
