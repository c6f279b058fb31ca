// A persistent team of threads that runs flat lists of jobs: one list, one barrier, no nesting (docs/ARCHITECTURE.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace cohort {

class ThreadTeam {
 public:
  /// `threads` >= 1, the caller counted: the team starts threads - 1 others. pin: bind thread i to the i-th core of the
  /// allowed set.
  explicit ThreadTeam(int threads, bool pin = false);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return threads_; }

  /// Runs job(index, thread) for index in [0, count), indices taken dynamically in ascending order; returns when all
  /// are done. It waits for jobs, not for threads: a thread that the operating system keeps from running holds up at
  /// most the one job that it has begun, and nothing at all when it has begun none. Only one caller at a time; a job
  /// must not call run.
  template <class Job>
  void run(int64_t count, Job&& job) {
    using Plain = std::remove_reference_t<Job>;
    run_erased(
        count, [](void* context, int64_t index, int thread) { (*static_cast<Plain*>(context))(index, thread); },
        const_cast<void*>(static_cast<const void*>(&job)));
  }

 private:
  using Invoke = void (*)(void* context, int64_t index, int thread);
  void run_erased(int64_t count, Invoke invoke, void* context);
  void run_list(uint32_t count);
  void work(int thread);
  uint32_t take_jobs(int thread);

  struct Shared;
  int threads_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace cohort
