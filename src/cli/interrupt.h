// Ctrl-C during long work: the work is asked to stop, so that it can tidy up.
#pragma once

#include <csignal>

namespace cohort::cli {

/// While it lives, SIGINT and SIGTERM set a flag instead of ending the process. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool interrupted();

 private:
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
};

/// The exit code that a shell reports for a process that SIGINT ended.
inline constexpr int kInterruptedExit = 130;

}  // namespace cohort::cli
