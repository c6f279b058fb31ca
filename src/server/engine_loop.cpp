#include "server/engine_loop.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "base/result.h"
#include "base/thread_name.h"

namespace cohort::server {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

/// A sequence between submission and its last event.
struct EngineLoop::Flight {
  Ticket ticket = 0;
  std::shared_ptr<const EventHandler> handler;
  Clock::time_point submitted, first, last;
  int64_t generated = 0;
};

struct EngineLoop::Shared {
  struct Submission {
    Ticket ticket;
    SequenceRequest request;
    EventHandler handler;
    Clock::time_point time;
  };
  mutable std::mutex mutex;
  std::condition_variable wake, idle;
  // Guarded by the mutex.
  std::deque<Submission> submissions;
  std::vector<Ticket> cancellations;
  bool stop = false, draining = false;
  std::optional<Error> failure;
  size_t in_flight = 0;  // submitted and not ended
  size_t limit = 0;
  Ticket next_ticket = 1;
  Statistics statistics;
  LoopView view;
  StepWindow window;
  std::vector<uint64_t> routes;
  // The engine thread's own.
  std::unordered_map<SequenceId, Flight> flights;
  std::unordered_map<Ticket, SequenceId> ids;
  std::shared_ptr<EventMail> mail;
  std::vector<EventMail::Letter> ready;  // events to hand over
  bool changed = false;                  // sequences have come or gone since `published`
  Clock::time_point published;
  bool urgent = false;  // one of them is a sequence's first or last

  std::thread thread;
};

EngineLoop::EngineLoop(std::unique_ptr<Engine> engine, size_t queue_limit, Deliver deliver)
    : engine_(std::move(engine)), shared_(std::make_unique<Shared>()) {
  shared_->mail = std::make_shared<EventMail>(std::move(deliver));
  shared_->view.capacity = engine_->capacity();
  shared_->limit = static_cast<size_t>(shared_->view.capacity.max_streams) + queue_limit;
  shared_->thread = std::thread([this] { work(); });
}

EngineLoop::~EngineLoop() {
  stop();
}

void EngineLoop::stop() {
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->stop = true;
  }
  shared_->wake.notify_all();
  if (shared_->thread.joinable()) shared_->thread.join();
}

Expected<std::vector<Ticket>> EngineLoop::submit(std::vector<SequenceRequest> requests,
                                                 std::vector<EventHandler> handlers) {
  for (const SequenceRequest& request : requests) COHORT_TRY(engine_->check(request));
  std::vector<Ticket> tickets;
  {
    const std::scoped_lock lock(shared_->mutex);
    if (shared_->failure) return tl::unexpected<Error>(*shared_->failure);
    if (shared_->draining || shared_->stop) return fail(ErrorCode::cancelled, "the server is shutting down");
    if (shared_->in_flight + requests.size() > shared_->limit) {
      ++shared_->statistics.refused;
      return fail(ErrorCode::capacity,
                  "the queue is full: {} sequences are in flight, at most {} may be; try again later",
                  shared_->in_flight, shared_->limit);
    }
    const auto now = Clock::now();
    for (size_t i = 0; i < requests.size(); ++i) {
      tickets.push_back(shared_->next_ticket++);
      shared_->submissions.push_back({tickets.back(), std::move(requests[i]), std::move(handlers[i]), now});
    }
    shared_->in_flight += requests.size();
  }
  shared_->wake.notify_one();
  return tickets;
}

void EngineLoop::cancel(Ticket ticket) {
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->cancellations.push_back(ticket);
  }
  shared_->wake.notify_one();
}

void EngineLoop::drain() {
  const std::scoped_lock lock(shared_->mutex);
  shared_->draining = true;
}

bool EngineLoop::wait_idle(std::chrono::milliseconds timeout) {
  std::unique_lock lock(shared_->mutex);
  return shared_->idle.wait_for(lock, timeout, [this] { return shared_->in_flight == 0; });
}

bool EngineLoop::idle() const {
  const std::scoped_lock lock(shared_->mutex);
  return shared_->in_flight == 0;
}

size_t EngineLoop::limit() const {
  return shared_->limit;
}

LoopView EngineLoop::view() const {
  const std::scoped_lock lock(shared_->mutex);
  LoopView view = shared_->view;
  view.recent = shared_->window.view(Clock::now());
  view.waiting += shared_->submissions.size();
  view.waiting_by_priority = waiting_by_priority();
  view.failed = shared_->failure.has_value();
  if (shared_->failure) view.failure = shared_->failure->message;
  return view;
}

/// Those that the engine has not heard of yet, too. Under the mutex.
std::map<int32_t, size_t> EngineLoop::waiting_by_priority() const {
  std::map<int32_t, size_t> waiting = shared_->view.waiting_by_priority;
  for (const Shared::Submission& s : shared_->submissions) ++waiting[s.request.priority];
  return waiting;
}

std::vector<uint64_t> EngineLoop::routes() const {
  const std::scoped_lock lock(shared_->mutex);
  return shared_->routes;
}

std::string EngineLoop::prometheus(std::string_view model, double bandwidth) const {
  const std::scoped_lock lock(shared_->mutex);
  const LoopView& view = shared_->view;
  return shared_->statistics.prometheus(
      {view.running.size(), waiting_by_priority(), view.capacity, view.last, bandwidth}, model);
}

void EngineLoop::work() {
  name_thread("engine");
  while (true) {
    {
      std::unique_lock lock(shared_->mutex);
      shared_->wake.wait(lock, [this] {
        return shared_->stop || !shared_->submissions.empty() || !shared_->cancellations.empty() || !engine_->idle();
      });
      if (shared_->stop) break;
    }
    apply_commands();
    if (!engine_->idle() && !step()) break;
  }
  fail_all({ErrorCode::cancelled, "the server stopped"});
  shared_->mail->close();
}

void EngineLoop::apply_commands() {
  std::deque<Shared::Submission> submissions;
  std::vector<Ticket> cancellations;
  {
    const std::scoped_lock lock(shared_->mutex);
    submissions.swap(shared_->submissions);
    cancellations.swap(shared_->cancellations);
  }
  for (Shared::Submission& s : submissions) {
    auto id = engine_->submit(std::move(s.request));
    if (!id) {  // check() let it pass, so this does not happen; the client hears of it all the same
      TokenEvent event;
      event.finish = FinishReason::failed;
      event.error = id.error();
      event.sequence = s.ticket;
      shared_->ready.push_back({std::make_shared<const EventHandler>(std::move(s.handler)), std::move(event)});
      shared_->urgent = true;
      const std::scoped_lock lock(shared_->mutex);
      --shared_->in_flight;
      continue;
    }
    shared_->changed = true;
    shared_->ids[s.ticket] = *id;
    shared_->flights[*id] = {s.ticket, std::make_shared<const EventHandler>(std::move(s.handler)), s.time, {}, {}, 0};
  }
  for (const Ticket ticket : cancellations) {
    const auto found = shared_->ids.find(ticket);
    if (found == shared_->ids.end()) continue;
    engine_->cancel(found->second);
    TokenEvent event;
    event.finish = FinishReason::cancelled;
    end(ticket, event);
  }
  if (!cancellations.empty() || engine_->idle()) publish({}, 0);
  hand_over();
}

void EngineLoop::hand_over() {
  shared_->mail->send(shared_->ready, std::exchange(shared_->urgent, false));
}

/// Forgets a sequence that has ended.
void EngineLoop::end(Ticket ticket, const TokenEvent& event) {
  shared_->changed = true;
  const auto id = shared_->ids.find(ticket);
  const Flight& flight = shared_->flights.at(id->second);
  {
    const std::scoped_lock lock(shared_->mutex);
    Statistics& s = shared_->statistics;
    s.request.add(seconds_between(flight.submitted, Clock::now()));
    switch (event.finish) {
      case FinishReason::end_token:
      case FinishReason::complete:
        ++s.finished_stop;
        break;
      case FinishReason::cancelled:
        ++s.finished_cancelled;
        break;
      case FinishReason::failed:
        ++s.finished_failed;
        break;
      default:
        ++s.finished_length;
        break;
    }
    --shared_->in_flight;
    if (shared_->in_flight == 0) shared_->idle.notify_all();
  }
  shared_->flights.erase(id->second);
  shared_->ids.erase(id);
}

void EngineLoop::deliver(std::vector<TokenEvent> events) {
  const auto now = Clock::now();
  {
    const std::scoped_lock lock(shared_->mutex);
    Statistics& s = shared_->statistics;
    for (const TokenEvent& event : events) {
      const auto found = shared_->flights.find(event.sequence);
      if (found == shared_->flights.end() || event.finish == FinishReason::failed) continue;
      const Flight& flight = found->second;
      ++s.generation_tokens;
      if (flight.generated == 0) {
        s.first_token.add(seconds_between(flight.submitted, now));
      } else {
        s.inter_token.add(seconds_between(flight.last, now));
      }
    }
  }
  for (TokenEvent& event : events) {
    const auto found = shared_->flights.find(event.sequence);
    if (found == shared_->flights.end()) continue;
    Flight& flight = found->second;
    if (flight.generated == 0) flight.first = now;
    flight.last = now;
    event.sequence = flight.ticket;
    shared_->urgent |= flight.generated++ == 0 || event.finish != FinishReason::none;
    shared_->ready.push_back({flight.handler, std::move(event)});
    const TokenEvent& handed = shared_->ready.back().event;
    if (handed.finish != FinishReason::none) end(flight.ticket, handed);
  }
}

/// One step; false when the device failed.
bool EngineLoop::step() {
  auto report = engine_->step();
  if (!report) {
    log::error("the engine failed and stops: {}", report.error().message);
    {
      const std::scoped_lock lock(shared_->mutex);
      shared_->failure = report.error();
    }
    return false;
  }
  const size_t tokens = report->events.size();
  deliver(std::exchange(report->events, {}));
  // In this order, so that who has an answer finds it ended in view(), too.
  publish(std::move(*report), tokens);
  hand_over();
  return true;
}

void EngineLoop::fail_all(const Error& reason) {
  std::deque<Shared::Submission> submissions;
  Error error = reason;
  {
    const std::scoped_lock lock(shared_->mutex);
    submissions.swap(shared_->submissions);
    shared_->stop = true;
    if (shared_->failure) error = *shared_->failure;
  }
  TokenEvent event;
  event.finish = FinishReason::failed;
  event.error = error;
  while (!shared_->flights.empty()) {
    const auto& [id, flight] = *shared_->flights.begin();
    engine_->cancel(id);
    event.sequence = flight.ticket;
    shared_->ready.push_back({flight.handler, event});
    end(flight.ticket, event);
  }
  for (Shared::Submission& s : submissions) {
    event.sequence = s.ticket;
    shared_->ready.push_back({std::make_shared<const EventHandler>(std::move(s.handler)), event});
  }
  shared_->urgent = true;
  hand_over();
  const std::scoped_lock lock(shared_->mutex);
  shared_->in_flight -= submissions.size();
  if (shared_->in_flight == 0) shared_->idle.notify_all();
}

/// What every sequence does, when sequences have come or gone, else every few milliseconds.
void EngineLoop::publish_running(Clock::time_point now) {
  constexpr std::chrono::milliseconds kFresh{5};
  if (!std::exchange(shared_->changed, false) && now - shared_->published < kFresh) return;
  shared_->published = now;
  std::vector<SlotView> running;
  for (SequenceStatus& status : engine_->sequences()) {
    const auto found = shared_->flights.find(status.id);
    if (found == shared_->flights.end()) continue;
    const Flight& f = found->second;
    const double decoding = seconds_between(f.first, f.last);
    running.push_back({f.ticket, status, seconds_between(f.submitted, now),
                       f.generated > 1 && decoding > 0 ? static_cast<double>(f.generated - 1) / decoding : 0});
  }
  const std::scoped_lock lock(shared_->mutex);
  shared_->view.running = std::move(running);
}

void EngineLoop::publish(StepReport report, size_t tokens) {
  const auto now = Clock::now();
  publish_running(now);
  const std::scoped_lock lock(shared_->mutex);
  Statistics& s = shared_->statistics;
  LoopView& view = shared_->view;
  view.waiting = engine_->waiting();
  view.waiting_by_priority = engine_->waiting_by_priority();
  view.capacity = engine_->capacity();
  if (report.rows == 0) return;
  ++view.steps;
  s.step.add(report.seconds);
  s.rows.add(static_cast<double>(report.rows));
  if (report.distinct_experts > 0) s.distinct_experts.add(report.distinct_experts);
  s.weight_bytes += report.bytes;
  s.prompt_tokens += static_cast<uint64_t>(report.prompt_tokens);
  s.reused_tokens += static_cast<uint64_t>(report.reused_tokens);
  s.preemptions += static_cast<uint64_t>(report.preemptions);
  s.guesses += static_cast<uint64_t>(report.guesses);
  s.right_guesses += static_cast<uint64_t>(report.right_guesses);
  view.prompt_tokens = s.prompt_tokens;
  view.reused_tokens = s.reused_tokens;
  view.preemptions = s.preemptions;
  view.generation_tokens = s.generation_tokens;
  shared_->routes.resize(report.routes.size());
  for (size_t i = 0; i < report.routes.size(); ++i) shared_->routes[i] += report.routes[i];
  shared_->window.add(now, report, tokens);
  report.routes.clear();
  view.last = std::move(report);
}

}  // namespace cohort::server
