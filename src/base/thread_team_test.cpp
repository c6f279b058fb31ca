#include "base/thread_team.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

namespace cohort {
namespace {

using namespace std::chrono_literals;

/// A door that threads wait at until it is opened.
class Door {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

TEST(thread_team, every_job_runs_once_and_is_seen_after_the_list) {
  for (int threads : {1, 2, 3, 8, 40}) {
    ThreadTeam team(threads);
    EXPECT_EQ(team.size(), threads);
    for (int64_t count : {0, 1, 2, 3, 7, 100, 5000}) {
      std::vector<int> runs(static_cast<size_t>(count));  // plain ints: the barrier must order them
      std::atomic<bool> thread_in_range = true;
      team.run(count, [&](int64_t index, int thread) {
        ++runs[static_cast<size_t>(index)];
        if (thread < 0 || thread >= threads) thread_in_range = false;
      });
      EXPECT_EQ(std::ranges::count(runs, 1), count) << threads << " threads";
      EXPECT_TRUE(thread_in_range);
    }
  }
}

TEST(thread_team, many_short_lists_each_see_the_one_before) {
  ThreadTeam team(4);
  std::array<int64_t, 16> values{};
  for (int64_t list = 0; list < 20000; ++list) {
    const int64_t jobs = 2 + list % 15;
    team.run(jobs, [&](int64_t index, int) {
      // Its neighbour of the list before was written by any thread.
      values[static_cast<size_t>(index)] += 1;
    });
  }
  int64_t sum = 0;
  for (int64_t value : values) sum += value;
  int64_t expected = 0;
  for (int64_t list = 0; list < 20000; ++list) expected += 2 + list % 15;
  EXPECT_EQ(sum, expected);
}

TEST(thread_team, a_thread_belongs_to_one_job_at_a_time) {
  constexpr int kThreads = 6;
  ThreadTeam team(kThreads);
  std::array<std::atomic<int>, kThreads> inside{};
  std::atomic<bool> shared = false;
  for (int list = 0; list < 300; ++list) {
    team.run(50, [&](int64_t, int thread) {
      if (inside[static_cast<size_t>(thread)].fetch_add(1) != 0) shared = true;
      inside[static_cast<size_t>(thread)].fetch_sub(1);
    });
  }
  EXPECT_FALSE(shared);
}

TEST(thread_team, a_thread_that_is_held_up_holds_up_no_other_job) {
  constexpr int64_t kJobs = 64;
  ThreadTeam team(2);
  for (int round = 0; round < 20; ++round) {
    Door others_done;
    std::atomic<int64_t> done = 0;
    // Whoever takes job 0 is stuck until all other jobs have run: the rest of the team must take them.
    team.run(kJobs, [&](int64_t index, int) {
      if (index == 0) {
        others_done.wait();
        return;
      }
      if (done.fetch_add(1) + 1 == kJobs - 1) others_done.open();
    });
    EXPECT_EQ(done, kJobs - 1);
  }
}

// A thread that a signal keeps inside this handler is, for the team, one that gets no core. The handler only reads and
// writes pipes, which a signal handler may.
std::array<int, 2> g_entered, g_leave;
void keep_busy(int) {
  char byte = 0;
  if (write(g_entered[1], &byte, 1) != 1 || read(g_leave[0], &byte, 1) != 1) abort();
}

TEST(thread_team, lists_end_while_a_thread_gets_no_core) {
  ASSERT_EQ(pipe(g_entered.data()), 0);
  ASSERT_EQ(pipe(g_leave.data()), 0);
  struct sigaction action {
  }, before{};
  action.sa_handler = keep_busy;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  ThreadTeam team(2);
  // Two jobs that need each other show who the other thread is.
  std::array<pthread_t, 2> ids{};
  std::atomic<int> inside = 0;
  team.run(2, [&](int64_t, int thread) {
    ids[static_cast<size_t>(thread)] = pthread_self();
    ++inside;
    while (inside < 2) std::this_thread::yield();
  });
  ASSERT_EQ(pthread_kill(ids[1], SIGUSR1), 0);
  char byte = 0;
  ASSERT_EQ(read(g_entered[0], &byte, 1), 1);
  for (int64_t list = 0; list < 100; ++list) {
    int64_t sum = 0;
    team.run(50, [&](int64_t index, int) { sum += index; });  // the caller alone
    ASSERT_EQ(sum, 49 * 50 / 2);
  }
  ASSERT_EQ(write(g_leave[1], &byte, 1), 1);
  inside = 0;  // and now both again
  team.run(2, [&](int64_t, int) {
    ++inside;
    while (inside < 2) std::this_thread::yield();
  });
  EXPECT_EQ(inside, 2);
  EXPECT_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
  for (int end : {g_entered[0], g_entered[1], g_leave[0], g_leave[1]}) close(end);
}

TEST(thread_team, wakes_after_it_has_slept) {
  ThreadTeam team(3);
  for (int list = 0; list < 5; ++list) {
    std::this_thread::sleep_for(20ms);  // long after the threads went to sleep
    // Two jobs that need each other: at least two threads must be awake.
    std::atomic<int> inside = 0;
    team.run(2, [&](int64_t, int) {
      ++inside;
      while (inside < 2) std::this_thread::yield();
    });
    EXPECT_EQ(inside, 2);
  }
}

TEST(thread_team, ends_while_asleep_and_while_awake) {
  for (auto rest : {0ms, 5ms}) {
    for (int round = 0; round < 10; ++round) {
      ThreadTeam team(5);
      team.run(10, [](int64_t, int) {});
      std::this_thread::sleep_for(rest);
    }
  }
}

}  // namespace
}  // namespace cohort
