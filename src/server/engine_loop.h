// The engine's thread: takes sequences from any thread, steps the engine, hands every token to its sequence's handler.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/engine.h"
#include "server/event_mail.h"
#include "server/statistics.h"
#include "server/step_window.h"

namespace cohort::server {

/// Names a submitted sequence; never used twice.
using Ticket = uint64_t;

/// One sequence in flight, for /slots.
struct SlotView {
  Ticket ticket = 0;
  SequenceStatus status;
  double seconds = 0;            // since it was submitted
  double tokens_per_second = 0;  // of decoding; 0 before the second token
};

struct LoopView {
  std::vector<SlotView> running;
  size_t waiting = 0;
  std::map<int32_t, size_t> waiting_by_priority;
  StepReport last;  // the last step, without events
  Capacity capacity;
  StepWindow::View recent;  // about the last second
  uint64_t steps = 0, generation_tokens = 0, prompt_tokens = 0, reused_tokens = 0, preemptions = 0;
  bool failed = false;  // the device failed; nothing runs any more
  std::string failure;
};

class EngineLoop {
 public:
  /// Starts the thread. `queue_limit`: sequences that may wait beyond those that the engine can run.
  EngineLoop(std::unique_ptr<Engine> engine, size_t queue_limit, Deliver deliver);
  /// As stop().
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  /// Queues all of `requests`, or none. Errors: those of Engine::check; capacity with a message that begins with "the
  /// queue" when it is full (try again later); cancelled while draining; internal when the device has failed.
  /// `handlers` has one entry for each request.
  Expected<std::vector<Ticket>> submit(std::vector<SequenceRequest> requests, std::vector<EventHandler> handlers);
  /// Frees the sequence's pages before the next step; no further events are made for it, but some may be on their way.
  /// Unknown tickets are ignored.
  void cancel(Ticket ticket);

  /// No new sequences from now on.
  void drain();
  /// Waits until nothing is in flight; false after `timeout`.
  bool wait_idle(std::chrono::milliseconds timeout);
  bool idle() const;
  /// Most sequences that run and wait at one time.
  size_t limit() const;
  /// Ends the thread; what was in flight fails (its handlers hear of it if `Deliver` still runs anything). Not to be
  /// called from a handler.
  void stop();

  LoopView view() const;
  /// [MoE layers, experts] rows that chose each expert since the start; empty where the device does not say.
  std::vector<uint64_t> routes() const;
  /// `bandwidth`: GB/s of the device's memory, 0 when it is not known.
  std::string prometheus(std::string_view model, double bandwidth) const;

  /// Immutable facts of the engine: model(), description(), check().
  const Engine& engine() const { return *engine_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Shared;
  struct Flight;
  std::map<int32_t, size_t> waiting_by_priority() const;
  void work();
  void apply_commands();
  bool step();
  void deliver(std::vector<TokenEvent> events);
  void hand_over();
  void end(Ticket ticket, const TokenEvent& event);
  void fail_all(const Error& error);
  void publish(StepReport report, size_t tokens);
  void publish_running(Clock::time_point now);

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace cohort::server
