#include "server/step_window.h"

#include <gtest/gtest.h>

namespace cohort::server {
namespace {

using std::chrono::milliseconds;

StepReport step(double seconds, int64_t rows, int64_t prefill_rows, double experts, double bytes) {
  StepReport report;
  report.seconds = seconds;
  report.rows = rows;
  report.prefill_rows = prefill_rows;
  report.distinct_experts = experts;
  report.bytes = bytes;
  return report;
}

TEST(StepWindow, MeansAndRatesAreOfTheSameSecond) {
  StepWindow window;
  StepWindow::Time now;
  EXPECT_EQ(window.view(now).steps, 0U);
  EXPECT_EQ(window.view(now).rows, 0);
  window.add(now, step(0.5, 1000, 1000, 60, 1e9), 1);  // will be too old
  for (int i = 0; i < 10; ++i) {
    now += milliseconds(100);
    window.add(now, i % 2 == 0 ? step(0.01, 4, 0, 10, 100) : step(0.03, 20, 16, 20, 300), 4);
  }
  const StepWindow::View view = window.view(now);
  EXPECT_EQ(view.steps, 10U);
  EXPECT_DOUBLE_EQ(view.rows_per_second, 120);
  EXPECT_DOUBLE_EQ(view.tokens_per_second, 40);
  EXPECT_DOUBLE_EQ(view.rows, 12);
  EXPECT_DOUBLE_EQ(view.prefill_rows, 8);
  EXPECT_NEAR(view.distinct_experts, 15, 1e-9);
  EXPECT_NEAR(view.seconds, 0.02, 1e-12);
  EXPECT_NEAR(view.bytes_per_second, 10000, 1e-3);  // a long step counts for what it is
  EXPECT_EQ(window.view(now + milliseconds(950)).steps, 1U);
  EXPECT_EQ(window.view(now + milliseconds(1000)).steps, 0U);
  EXPECT_EQ(window.view(now + milliseconds(1000)).tokens_per_second, 0);
}

TEST(StepWindow, StepsOfMoreThanASecondAreNotCountedAsOfOne) {
  StepWindow window;
  StepWindow::Time now;
  for (int i = 0; i < 5; ++i) {
    now += milliseconds(2500);
    window.add(now, step(2.5, 5, 0, 8, 1e9), 5);
    EXPECT_DOUBLE_EQ(window.view(now).tokens_per_second, 2);
    EXPECT_DOUBLE_EQ(window.view(now + milliseconds(2400)).tokens_per_second, 2);
  }
  EXPECT_EQ(window.view(now + milliseconds(2500)).tokens_per_second, 0);
}

}  // namespace
}  // namespace cohort::server
