// One word holds a list: how many jobs it has and which is next. Whoever adds one to it and gets a job below the count
// owns a job of the list that is running now, whenever it looked last, and the list cannot end before that job is done.
// So nobody has to wait until every thread has noticed a list, or its end: a thread that another program keeps from
// running is simply not there. (Counting threads in and out made every list wait for the slowest of them to be
// scheduled: with one core taken by another program, Libris fell to a tenth of the speed that one thread has.)
//
// Waiting: a short spin (the next list usually comes within microseconds), then a while of giving the core to whoever
// else wants it, which may be the very thread that is waited for, then sleep on a futex through std::atomic::wait, so
// that an idle engine uses no processor time.
#include "base/thread_team.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/thread_name.h"

namespace cohort {
namespace {

constexpr int kSpins = 60;    // of pause: 2-4 us
constexpr int kYields = 200;  // 60-100 us when nobody else wants the core: longer than any gap inside a step
constexpr int64_t kLongestList = int64_t{1} << 31;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// False: the time is over and `ready` still was not.
template <class Ready>
bool wait_awake(Ready&& ready) {
  for (int i = 0; i < kSpins; ++i) {
    if (ready()) return true;
    pause_cpu();
  }
  for (int i = 0; i < kYields; ++i) {
    if (ready()) return true;
    sched_yield();
  }
  return ready();
}

constexpr uint64_t list_of(uint32_t jobs) {
  return uint64_t{jobs} << 32;
}
constexpr uint32_t jobs_of(uint64_t list) {
  return static_cast<uint32_t>(list >> 32);
}
constexpr uint32_t next_of(uint64_t list) {
  return static_cast<uint32_t>(list);
}

void pin_to(int index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const int count = CPU_COUNT(&allowed);
  if (count == 0) return;
  int wanted = index % count;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || wanted-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    return;
  }
}

}  // namespace

struct ThreadTeam::Shared {
  // Jobs and next job. Next passes the count by at most one for each thread.
  alignas(64) std::atomic<uint64_t> list{0};
  alignas(64) std::atomic<uint32_t> done{0};        // jobs of the list that have ended
  alignas(64) std::atomic<uint32_t> generation{0};  // bumped when a list starts: what sleeping threads wait for
  std::atomic<bool> stop{false};
  // Of the list that runs: written before it is published, stable until all its jobs are done.
  int64_t first = 0;
  Invoke invoke = nullptr;
  void* context = nullptr;
  bool pin = false;
  std::vector<std::thread> workers;
};

ThreadTeam::ThreadTeam(int threads, bool pin) : threads_(threads), shared_(std::make_unique<Shared>()) {
  shared_->pin = pin;
  shared_->workers.reserve(static_cast<size_t>(threads - 1));
  for (int i = 1; i < threads; ++i) shared_->workers.emplace_back([this, i] { work(i); });
}

ThreadTeam::~ThreadTeam() {
  shared_->stop.store(true);
  shared_->generation.fetch_add(1);
  shared_->generation.notify_all();
  for (auto& worker : shared_->workers) worker.join();
}

/// Jobs done.
uint32_t ThreadTeam::take_jobs(int thread) {
  Shared& s = *shared_;
  uint32_t taken = 0;
  for (;; ++taken) {
    uint64_t list = s.list.load(std::memory_order_acquire);
    if (next_of(list) >= jobs_of(list)) return taken;
    list = s.list.fetch_add(1, std::memory_order_acquire);
    if (next_of(list) >= jobs_of(list)) return taken;
    s.invoke(s.context, s.first + next_of(list), thread);
  }
}

void ThreadTeam::work(int thread) {
  name_thread("compute");
  Shared& s = *shared_;
  if (s.pin) pin_to(thread);
  for (;;) {
    // Read before the list is: a list that starts in between changes it.
    const uint32_t seen = s.generation.load(std::memory_order_acquire);
    if (s.stop.load(std::memory_order_relaxed)) return;
    if (const uint32_t taken = take_jobs(thread); taken > 0) {
      s.done.fetch_add(taken, std::memory_order_release);
      s.done.notify_one();
      continue;
    }
    if (!wait_awake([&] { return s.generation.load(std::memory_order_acquire) != seen; }))
      s.generation.wait(seen, std::memory_order_acquire);
  }
}

void ThreadTeam::run_list(uint32_t count) {
  Shared& s = *shared_;
  s.done.store(0, std::memory_order_relaxed);
  s.list.store(list_of(count), std::memory_order_release);
  s.generation.fetch_add(1, std::memory_order_release);
  s.generation.notify_all();
  const uint32_t missing = count - take_jobs(0);
  if (wait_awake([&] { return s.done.load(std::memory_order_acquire) == missing; })) return;
  for (uint32_t done = 0; (done = s.done.load(std::memory_order_acquire)) != missing;)
    s.done.wait(done, std::memory_order_acquire);
}

void ThreadTeam::run_erased(int64_t count, Invoke invoke, void* context) {
  if (count <= 0) return;
  Shared& s = *shared_;
  if (threads_ == 1 || count == 1) {
    for (int64_t index = 0; index < count; ++index) invoke(context, index, 0);
    return;
  }
  s.invoke = invoke;
  s.context = context;
  for (s.first = 0; s.first < count; s.first += kLongestList)
    run_list(static_cast<uint32_t>(std::min(count - s.first, kLongestList)));
}

}  // namespace cohort
