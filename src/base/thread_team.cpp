// Waiting: a worker spins for a while (the next list usually comes within microseconds), then sleeps on a futex through
// std::atomic::wait, so an idle engine uses no processor time and an oversubscribed machine makes progress.
#include "base/thread_team.h"

#include <pthread.h>
#include <sched.h>

#include <thread>
#include <vector>

namespace cohort {
namespace {

constexpr int kSpins =
    4000;  // about 50-100 us of pause: longer than any gap inside a step, shorter than a person notices

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
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
  alignas(64) std::atomic<uint32_t> generation{0};  // bumped when a list starts
  alignas(64) std::atomic<int64_t> next{0};         // next job
  alignas(64) std::atomic<int> busy{0};             // workers still inside the current list
  std::atomic<bool> stop{false};
  int64_t count = 0;
  Invoke invoke = nullptr;
  void* context = nullptr;
  bool pin = false;
  // More threads than cores: spinning would only keep the one who has work from running.
  int spins = kSpins;
  std::vector<std::thread> workers;
};

ThreadTeam::ThreadTeam(int threads, bool pin) : threads_(threads), shared_(std::make_unique<Shared>()) {
  shared_->pin = pin;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && threads > CPU_COUNT(&allowed)) shared_->spins = 1;
  shared_->workers.reserve(static_cast<size_t>(threads - 1));
  for (int i = 1; i < threads; ++i) shared_->workers.emplace_back([this, i] { work(i); });
}

ThreadTeam::~ThreadTeam() {
  shared_->stop.store(true);
  shared_->generation.fetch_add(1);
  shared_->generation.notify_all();
  for (auto& worker : shared_->workers) worker.join();
}

void ThreadTeam::take_jobs(int thread) {
  Shared& s = *shared_;
  for (int64_t index = s.next.fetch_add(1, std::memory_order_relaxed); index < s.count;
       index = s.next.fetch_add(1, std::memory_order_relaxed)) {
    s.invoke(s.context, index, thread);
  }
}

void ThreadTeam::work(int thread) {
  Shared& s = *shared_;
  if (s.pin) pin_to(thread);
  uint32_t seen = 0;
  for (;;) {
    for (int spin = 0; spin < s.spins && s.generation.load(std::memory_order_acquire) == seen; ++spin) pause_cpu();
    while (s.generation.load(std::memory_order_acquire) == seen) s.generation.wait(seen, std::memory_order_acquire);
    if (s.stop.load(std::memory_order_relaxed)) return;
    seen = s.generation.load(std::memory_order_acquire);
    take_jobs(thread);
    if (s.busy.fetch_sub(1, std::memory_order_acq_rel) == 1) s.busy.notify_one();
  }
}

void ThreadTeam::run_erased(int64_t count, Invoke invoke, void* context) {
  if (count <= 0) return;
  Shared& s = *shared_;
  if (threads_ == 1 || count == 1) {
    for (int64_t index = 0; index < count; ++index) invoke(context, index, 0);
    return;
  }
  s.count = count;
  s.invoke = invoke;
  s.context = context;
  s.next.store(0, std::memory_order_relaxed);
  s.busy.store(threads_ - 1, std::memory_order_relaxed);
  s.generation.fetch_add(1, std::memory_order_release);
  s.generation.notify_all();
  take_jobs(0);
  int left = 0;
  for (int spin = 0; spin < s.spins && s.busy.load(std::memory_order_acquire) != 0; ++spin) pause_cpu();
  while ((left = s.busy.load(std::memory_order_acquire)) != 0) s.busy.wait(left, std::memory_order_acquire);
}

}  // namespace cohort
