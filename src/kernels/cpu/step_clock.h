// Runs the job lists of a step, with a clock while a profile is attached.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/thread_team.h"
#include "kernels/cpu/profile.h"
#include "models/program.h"

namespace cohort::cpu {

class StepClock {
 public:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  StepClock(const Program& program, int threads) : program_(program), busy_(static_cast<size_t>(threads)) {}

  /// Adds every following step to `profile` until nullptr is given.
  void set_profile(StepProfile* profile) { profile_ = profile; }
  bool on() const { return profile_ != nullptr; }

  void begin_step(size_t stages);
  void begin_stage(size_t index) { stage_ = index; }
  void end_step(double seconds);

  /// A row item of `op`, within a job that `thread` runs.
  void add_time(int thread, const Op* op, double seconds) {
    auto& entry = busy_[static_cast<size_t>(thread)].ops[index_of(op)];
    entry.seconds += seconds;
    ++entry.jobs;
  }
  void add_bytes(const Op* op, double bytes) {
    if (profile_ != nullptr) profile_->ops[index_of(op)].bytes += bytes;
  }
  /// What the calling thread did since `start`, outside of stages.
  void add_serial(Clock::time_point start) {
    if (profile_ != nullptr) profile_->serial_seconds += seconds_since(start);
  }

  /// Runs `job(index, thread)`; `op_of(index)` says whose time it is (null: the job says itself, by add_time).
  template <class Job, class OpOf>
  void run_jobs(ThreadTeam& team, int64_t count, Job&& job, OpOf&& op_of) {
    if (profile_ == nullptr) {
      team.run(count, job);
      return;
    }
    const auto start = Clock::now();
    begin_list();
    team.run(count, [&](int64_t index, int thread) {
      const auto job_start = Clock::now();
      job(index, thread);
      const double seconds = seconds_since(job_start);
      busy_[static_cast<size_t>(thread)].seconds += seconds;
      if (const Op* op = op_of(index)) add_time(thread, op, seconds);
    });
    end_list(seconds_since(start));
  }

 private:
  struct Busy {
    double seconds = 0;
    struct Entry {
      double seconds = 0;
      int64_t jobs = 0;
    };
    std::vector<Entry> ops;
  };
  size_t index_of(const Op* op) const { return static_cast<size_t>(op - program_.ops.data()); }
  void begin_list();
  void end_list(double wall);

  const Program& program_;
  StepProfile* profile_ = nullptr;
  size_t stage_ = 0;
  std::vector<Busy> busy_;  // by thread
};

}  // namespace cohort::cpu
