// A list of jobs in which every thread has neighbours of its own: it takes them in order, so that it knows which comes
// next and has the memory of its own rows in its cache; who has none left takes the last ones of another.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace cohort::cpu {

class OwnedJobs {
 public:
  explicit OwnedJobs(int threads)
      : threads_(threads), ranges_(std::make_unique<Range[]>(static_cast<size_t>(threads))) {}

  /// Splits jobs 0 .. count - 1 (below 2^32) into one run for each thread, of about the same sum of cost(job).
  template <class Cost>
  void begin(int64_t count, Cost&& cost) {
    double total = 0, sum = 0;
    for (int64_t job = 0; job < count; ++job) total += cost(job);
    int64_t first = 0, last = 0;
    for (int thread = 0; thread < threads_; ++thread, first = last) {
      const double wanted = total * (thread + 1) / threads_;
      while (last < count && (thread + 1 == threads_ || sum < wanted)) sum += cost(last++);
      range(thread).store(pack(static_cast<uint64_t>(first), static_cast<uint64_t>(last)), std::memory_order_relaxed);
    }
  }

  /// A job nobody has taken, or -1 when there is none left. `next`: the one that this thread takes after it, or -1 when
  /// that is not known.
  int64_t take(int thread, int64_t& next) {
    for (int i = 0; i < threads_; ++i) {
      std::atomic<uint64_t>& own = range((thread + i) % threads_);
      uint64_t now = own.load(std::memory_order_relaxed);
      while (first_of(now) < last_of(now)) {
        // From the front of one's own, from the back of another's.
        const uint64_t first = first_of(now) + (i == 0 ? 1 : 0), last = last_of(now) - (i == 0 ? 0 : 1);
        if (!own.compare_exchange_weak(now, pack(first, last), std::memory_order_relaxed)) continue;
        next = first < last ? static_cast<int64_t>(i == 0 ? first : last - 1) : -1;
        return static_cast<int64_t>(i == 0 ? first - 1 : last);
      }
    }
    next = -1;
    return -1;
  }

 private:
  struct alignas(64) Range {
    std::atomic<uint64_t> jobs{0};  // last << 32 | first
  };
  static constexpr uint64_t pack(uint64_t first, uint64_t last) { return last << 32 | first; }
  static constexpr uint64_t first_of(uint64_t range) { return range & 0xffffffff; }
  static constexpr uint64_t last_of(uint64_t range) { return range >> 32; }
  std::atomic<uint64_t>& range(int thread) { return ranges_[static_cast<size_t>(thread)].jobs; }

  int threads_;
  std::unique_ptr<Range[]> ranges_;
};

}  // namespace cohort::cpu
