// Events on their way from the engine's thread to the handlers of their sequences, on another thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cohort/engine.h"

namespace cohort::server {

/// Called with the events of a sequence in order, one or more at a time; the last event's finish is not none. Runs
/// where the mail's `Deliver` runs it.
using EventHandler = std::function<void(std::vector<TokenEvent>)>;

/// Runs what it is given, one after another in order, on another thread. A task may take milliseconds and spend them
/// asleep.
using Deliver = std::function<void(std::function<void()>)>;

/// Waking a thread costs the one that wakes it 10 to 30 us on a virtual machine, as much as a tenth of a small model's
/// step, and whatever the woken thread does takes a core from the step. So events are fetched rather than sent: while
/// they come, the delivering thread looks every now and then and finds what several short steps have left there, one
/// write for each client. How often it looks follows from what it has to do. When steps are longer than its looks it
/// goes, and has to be woken again, which is then little. First and last events are urgent: they wake it at once.
class EventMail : public std::enable_shared_from_this<EventMail> {
 public:
  explicit EventMail(Deliver deliver) : deliver_(std::move(deliver)) {}

  struct Letter {
    std::shared_ptr<const EventHandler> handler;
    TokenEvent event;
  };
  /// Takes `letters` (and leaves it empty, its memory kept). One thread at a time.
  void send(std::vector<Letter>& letters, bool urgent);
  /// The last letters have been sent. What has not been delivered belongs to `Deliver` from now on, so that it goes
  /// when that does: handlers may own whoever owns this.
  void close();

 private:
  void deliver();
  static void hand_out(std::vector<Letter>& letters);

  const Deliver deliver_;
  std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by the mutex.
  std::vector<Letter> waiting_;
  bool delivering_ = false;  // a thread looks for letters, or is about to
  bool urgent_ = false;
};

}  // namespace cohort::server
