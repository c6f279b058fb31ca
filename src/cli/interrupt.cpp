#include "cli/interrupt.h"

#include <unistd.h>

#include <string_view>

namespace cohort::cli {
namespace {

// A signal handler can reach nothing else.
volatile std::sig_atomic_t asking = 0;
volatile std::sig_atomic_t came = 0;
volatile std::sig_atomic_t tidying = 0;  // what has begun to tidy up is not cut off

extern "C" void on_signal(int signal) {
  const bool again = came != 0;
  came = 1;
  if (asking != 0 && (tidying != 0 || !again)) return;
  // The shell's prompt, or what a terminal echoes as ^C, should not share the line.
  if (::isatty(STDERR_FILENO) != 0) [[maybe_unused]]
    const auto written = ::write(STDERR_FILENO, "\n", 1);
  ::_exit(128 + signal);
}

extern "C" void on_bus_error(int signal) {
  constexpr std::string_view kText =
      "cohort: a file that is mapped into memory became shorter or cannot be read any more (a model or packed weights, "
      "rewritten or on a failing disk?): stopped\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
  ::_exit(128 + signal);
}

}  // namespace

void explain_bus_errors() {
  struct sigaction action {};
  action.sa_handler = on_bus_error;
  ::sigaction(SIGBUS, &action, nullptr);
}

InterruptGuard::InterruptGuard(Mode mode) : terminate_(mode == Mode::ask) {
  set(mode);
  tidying = terminate_ ? 1 : 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigaction(SIGINT, &action, &old_interrupt_);
  if (terminate_) ::sigaction(SIGTERM, &action, &old_terminate_);
}

InterruptGuard::~InterruptGuard() {
  ::sigaction(SIGINT, &old_interrupt_, nullptr);
  if (terminate_) ::sigaction(SIGTERM, &old_terminate_, nullptr);
}

void InterruptGuard::set(Mode mode) {
  came = 0;
  asking = mode == Mode::ask ? 1 : 0;
}

bool InterruptGuard::interrupted() {
  return came != 0;
}

}  // namespace cohort::cli
