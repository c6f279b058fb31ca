#include "kernels/cpu/isa.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(IsaTest, ScalarIsAlwaysThereAndTheBestIsTheLast) {
  ASSERT_FALSE(available_isas().empty());
  EXPECT_EQ(available_isas().front(), Isa::scalar);
  EXPECT_EQ(best_isa(), available_isas().back());
  EXPECT_EQ(parse_isa("auto").value(), best_isa());
}

TEST(IsaTest, NamesOfWhatIsThereParse) {
  for (Isa isa : available_isas()) {
    EXPECT_TRUE(has_isa(isa));
    EXPECT_EQ(parse_isa(isa_name(isa)).value(), isa);
  }
}

TEST(IsaTest, WhatTheMachineLacksIsRefusedWithAList) {
  for (Isa isa : {Isa::avx2, Isa::avx512, Isa::amx, Isa::neon}) {
    if (has_isa(isa)) continue;
    const auto parsed = parse_isa(isa_name(isa));
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().code, ErrorCode::unsupported);
    EXPECT_NE(parsed.error().message.find(isa_list(available_isas())), std::string::npos) << parsed.error().message;
  }
}

TEST(IsaTest, UnknownNamesAreRefused) {
  for (const char* name : {"", "AVX2", "sse", "avx512 "}) {
    const auto parsed = parse_isa(name);
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().code, ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace cohort
