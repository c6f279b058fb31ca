#pragma once

#include <pthread.h>

namespace cohort {

/// Names the calling thread, for `top -H`, debuggers and profilers. At most 15 letters.
inline void name_thread(const char* name) {
  pthread_setname_np(pthread_self(), name);
}

}  // namespace cohort
