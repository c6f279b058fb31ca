#include "kernels/cpu/owned_jobs.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/thread_team.h"

namespace cohort::cpu {
namespace {

TEST(OwnedJobs, EveryJobIsTakenOnceByWhoeverAsks) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadTeam team(threads);
    OwnedJobs jobs(threads);
    for (const int64_t count : {int64_t{1}, int64_t{2}, int64_t{5}, int64_t{1000}}) {
      std::vector<std::atomic<int>> taken(static_cast<size_t>(count));
      jobs.begin(count, [&](int64_t job) { return static_cast<double>(count - job); });
      team.run(count, [&](int64_t, int thread) {
        int64_t next = 0;
        const int64_t job = jobs.take(thread, next);
        ASSERT_GE(job, 0);
        ++taken[static_cast<size_t>(job)];
      });
      for (const auto& times : taken) EXPECT_EQ(times.load(), 1);
      int64_t next = 0;
      EXPECT_EQ(jobs.take(0, next), -1);
    }
  }
}

TEST(OwnedJobs, RunsHaveEqualCostAndTheNextJobIsKnown) {
  OwnedJobs jobs(2);
  jobs.begin(8, [](int64_t job) { return job < 2 ? 3.0 : 1.0; });  // 0 and 1 cost as much as the six others
  int64_t next = 0;
  EXPECT_EQ(jobs.take(1, next), 2);
  EXPECT_EQ(next, 3);
  EXPECT_EQ(jobs.take(0, next), 0);
  EXPECT_EQ(next, 1);
  EXPECT_EQ(jobs.take(0, next), 1);
  EXPECT_EQ(next, -1);
  EXPECT_EQ(jobs.take(0, next), 7);  // the other's last
  EXPECT_EQ(next, 6);
}

}  // namespace
}  // namespace cohort::cpu
