// What Ctrl-C does while a command works.
#pragma once

#include <csignal>

namespace cohort::cli {

/// A mapped file that becomes shorter, or whose disk fails, ends the process where it is read: from now on with a
/// message that says so.
void explain_bus_errors();

/// Exit code of a command that SIGINT ended, as a shell reports such a process.
inline constexpr int kInterruptedExit = 130;

/// While it lives, signals that would end the process are handled here; one object at a time.
class InterruptGuard {
 public:
  enum class Mode {
    ask,         // a signal sets interrupted(), so that the work can end tidily
    end_at_once  // a signal ends the process with 128 + its number: for waiting and loading, where nothing is lost
  };
  /// ask: SIGINT and SIGTERM, for work that must tidy up. end_at_once: SIGINT alone, of which a second one ends the
  /// process even after set(ask).
  explicit InterruptGuard(Mode mode = Mode::ask);
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();

  /// Changes the mode of the same signals; forgets one that came before.
  static void set(Mode mode);
  /// Did a signal come since the mode became `ask`?
  static bool interrupted();

 private:
  bool terminate_;
  struct sigaction old_interrupt_ {};
  struct sigaction old_terminate_ {};
};

}  // namespace cohort::cli
