// An engine's beginning, what it accepts and what it says of itself; its steps are in engine_step.cpp.
#include "cohort/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/counted.h"
#include "base/result.h"
#include "engine/backend_choice.h"
#include "engine/engine_impl.h"
#include "engine/limits.h"
#include "engine/sampler.h"
#include "kv/pages.h"

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

/// The model's rules with what the options want otherwise; nothing (canvas_length 0) when it has none.
Expected<DiffusionRules> diffusion_rules(const Model& model, const EngineOptions& options) {
  const DiffusionRules& rules = model.config().diffusion;
  if (rules.canvas_length > 0) {
    if (options.draft != "off") {
      return fail(ErrorCode::unsupported,
                  "guessed tokens (--draft {}) are for models that make one token after another; {} denoises {} at a "
                  "time",
                  options.draft, model.path().string(), rules.canvas_length);
    }
    return with_options(rules, options.diffusion);
  }
  if (options.diffusion.any()) {
    return fail(ErrorCode::invalid_argument,
                "--diffusion-* options are for models of block diffusion; {} ({}) makes one token after another",
                model.path().string(), model.config().architecture);
  }
  return rules;
}
}  // namespace

Expected<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options, const ProgressCallback& progress) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  COHORT_TRY(check_options(options));
  COHORT_ASSIGN(impl->model, Model::load(options.model, options.context));
  COHORT_ASSIGN(impl->rules, diffusion_rules(*impl->model, options));
  const Program& program = impl->model->program();
  COHORT_ASSIGN(const TensorType kv_type, parse_kv_type(options.kv_type));
  impl->page_bytes = KvCache::page_bytes(program.cache_layers, kv_type);
  COHORT_ASSIGN(OpenedBackend opened, open_backend(*impl->model, options, progress));
  impl->backend = std::move(opened.backend);
  if (auto* reader = dynamic_cast<CanvasReader*>(impl->backend.get());
      reader != nullptr && reader->canvas_places() > 0) {
    impl->reader = reader;
    impl->places.resize(reader->canvas_places());
  }
  impl->note = std::move(opened.note);
  impl->roster =
      std::make_unique<Roster>(options.max_streams, opened.pages, options.prefix_cache, options.priority_aging_s);
  COHORT_ASSIGN(impl->speculator, Speculator::create(options, *impl->model, progress));
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
  const int32_t answer = std::max(1, impl_->rules.canvas_length);
  if (prompt + answer > impl_->model->context()) {
    return fail(ErrorCode::capacity,
                "the prompt has {}; the context of {} positions leaves room for at most {}{}: shorten it; {}",
                counted(prompt, "token"), impl_->model->context(), std::max(0, impl_->model->context() - answer),
                impl_->rules.canvas_length > 0 ? fmt::format(" beside a canvas of {}", answer) : "",
                impl_->model->longer_context());
  }
  if (impl_->rules.canvas_length > 0) COHORT_TRY(impl_->check_diffusion(request));
  const int64_t positions = impl_->positions_of(request);
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
  sequence.canvas_length = impl_->rules.canvas_length;
  if (request.constraint != nullptr) sequence.constraint = request.constraint->begin();
  sequence.request = std::move(request);
  impl_->roster->add(std::move(sequence));
  return impl_->next_id - 1;
}

void Engine::cancel(SequenceId id) {
  impl_->roster->remove(id);
  if (impl_->speculator) impl_->speculator->forget(id);
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
std::span<const float> Engine::logits_of(size_t event) const {
  const auto width = static_cast<size_t>(impl_->vocabulary());
  if (impl_->logits.empty() || impl_->rules.canvas_length > 0) return {};
  return std::span(impl_->logits).subspan(impl_->event_rows[event] * width, width);
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

const DiffusionRules& Engine::diffusion() const {
  return impl_->rules;
}

std::string Engine::draft() const {
  return impl_->speculator ? impl_->speculator->description() : "";
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
