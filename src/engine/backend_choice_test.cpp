#include "engine/backend_choice.h"

#include <gtest/gtest.h>

#include "kv/pages.h"
#include "models/model.h"

namespace cohort {
namespace {

TEST(ChoosePages, CanvasesTakeTheirShareOfMemory) {
  const auto model = Model::load(std::string(COHORT_SOURCE_DIR) + "/tests/golden/gguf/diffusion_gemma-bf16.gguf");
  ASSERT_TRUE(model) << model.error().message;
  const auto rows = static_cast<size_t>((*model)->config().diffusion.canvas_length);
  const auto vocabulary = static_cast<size_t>((*model)->program().vocabulary);
  ASSERT_GT(rows, 0U);
  const size_t canvas = rows * vocabulary * 12;
  EngineOptions options;
  options.max_streams = 4;
  constexpr size_t kPlenty = size_t{1} << 40, kPage = size_t{1} << 20;
  const auto pages = [&](size_t free) { return choose_pages(options, **model, kPage, {free, 0}); };
  const auto most = pages(kPlenty);
  ASSERT_TRUE(most) << most.error().message;

  // The least that is enough for one stream's pages is more by the canvases of all four.
  size_t low = 0, high = kPlenty;
  while (low + 1 < high) (pages(low + (high - low) / 2) ? high : low) = low + (high - low) / 2;
  const size_t reserve = high - 4 * canvas - static_cast<size_t>(pages_for((*model)->context())) * kPage;
  EXPECT_LT(reserve, size_t{4} << 30);
  options.max_streams = 1;
  EXPECT_TRUE(pages(high - 3 * canvas));
  EXPECT_FALSE(pages(high - 3 * canvas - 1));

  options.max_streams = 4;
  const auto refused = pages(reserve + 2 * canvas);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::capacity);
  EXPECT_NE(refused.error().message.find("the canvases of 4 streams"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("enough for 2: run fewer streams (-np)"), std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace cohort
