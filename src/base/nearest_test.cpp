#include "base/nearest.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(Nearest, CaseAndDashesDoNotCount) {
  EXPECT_EQ(nearest("maxTokens", {"min_tokens", "max_tokens"}), "max_tokens");
  EXPECT_EQ(nearest("--no_batching", {"--batching", "--no-batching"}), "--no-batching");
}

TEST(Nearest, AtMostTwoCharactersAndAThirdOfTheNameMayDiffer) {
  EXPECT_EQ(nearest("--thread", {"--threads", "--tree"}), "--threads");
  EXPECT_EQ(nearest("tepmerature", {"temperature"}), "temperature");
  EXPECT_EQ(nearest("tmpratre", {"temperature"}), "");
  EXPECT_EQ(nearest("x", {"n"}), "");
  EXPECT_EQ(nearest("setps", {"serve", "steps"}), "steps");
  EXPECT_EQ(nearest("sptes", {"steps"}), "");
  EXPECT_EQ(nearest("rum", {"run", "pack"}), "run");
}

TEST(Nearest, NothingKnownAndVeryLongNames) {
  EXPECT_EQ(nearest("run", {}), "");
  const std::string long_name(65, 'a');
  EXPECT_EQ(nearest(long_name, {long_name}), "");
}

}  // namespace
}  // namespace cohort
