#include "cli/interrupt.h"

namespace cohort::cli {
namespace {

// A signal handler can reach nothing else.
volatile std::sig_atomic_t stop = 0;

}  // namespace

InterruptGuard::InterruptGuard() {
  stop = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { stop = 1; };
  ::sigaction(SIGINT, &action, &old_int_);
  ::sigaction(SIGTERM, &action, &old_term_);
}

InterruptGuard::~InterruptGuard() {
  ::sigaction(SIGINT, &old_int_, nullptr);
  ::sigaction(SIGTERM, &old_term_, nullptr);
}

bool InterruptGuard::interrupted() {
  return stop != 0;
}

}  // namespace cohort::cli
