#include "kv/cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

namespace cohort {
namespace {

const std::vector<CacheLayer> kLayers = {{2, 64, 0}, {1, 80, 1024}, {4, 16, 0}};

TEST(kv_cache, pages_do_not_overlap_and_start_as_zeros) {
  for (TensorType type : {TensorType::f32, TensorType::f16, TensorType::bf16, TensorType::q8_0}) {
    auto cache = KvCache::create(kLayers, type, 5);
    ASSERT_TRUE(cache) << cache.error().message;
    // Heads of 64, 80 and 16 dimensions; in q8_0 a byte each and two for every 32 that are begun.
    const size_t position = type == TensorType::f32    ? 4 * (128 + 80 + 64)
                            : type == TensorType::q8_0 ? 2 * (64 + 4) + (80 + 6) + 4 * (16 + 2)
                                                       : 2 * (128 + 80 + 64);
    EXPECT_EQ(cache->page_bytes(), 2 * kPagePositions * position);
    EXPECT_EQ(cache->page_bytes(), KvCache::page_bytes(kLayers, type));
    // Fill each area with its own byte, then look that nobody wrote into a neighbour.
    for (int round = 0; round < 2; ++round) {
      unsigned char mark = 0;
      for (int32_t layer = 0; layer < 3; ++layer) {
        const auto& shape = kLayers[static_cast<size_t>(layer)];
        const size_t bytes = KvCache::half_page(type, shape.kv_heads, shape.head_dim);
        for (int32_t page = 0; page < 5; ++page) {
          for (std::byte* area : {cache->keys(layer, page), cache->values(layer, page)}) {
            ++mark;
            EXPECT_EQ(reinterpret_cast<uintptr_t>(area) % 64, 0U);
            for (size_t i = 0; i < bytes; ++i) {
              ASSERT_EQ(static_cast<unsigned char>(area[i]), round == 0 ? 0 : mark) << layer << " " << page << " " << i;
            }
            if (round == 0) std::memset(area, mark, bytes);
          }
        }
      }
    }
    KvCache moved = std::move(*cache);
    EXPECT_EQ(static_cast<unsigned char>(moved.keys(0, 0)[0]), 1);
  }
}

TEST(kv_cache, no_pages_is_a_cache) {
  auto cache = KvCache::create(kLayers, TensorType::f16, 0);
  ASSERT_TRUE(cache);
  EXPECT_EQ(cache->pages(), 0);
}

TEST(kv_cache, refuses_more_than_memory_holds_and_says_what_fits) {
  const auto cache = KvCache::create({{1024, 1024, 0}}, TensorType::f32, 2000000000);
  ASSERT_FALSE(cache);
  EXPECT_EQ(cache.error().code, ErrorCode::capacity);
  // 2 * 1024 * 1024 * 32 * 4 bytes a page
  EXPECT_NE(cache.error().message.find("536870912000000000 bytes"), std::string::npos) << cache.error().message;
  EXPECT_NE(cache.error().message.find("available"), std::string::npos) << cache.error().message;
  EXPECT_NE(cache.error().message.find("fit"), std::string::npos) << cache.error().message;
}

TEST(kv_cache, refuses_types_and_counts_that_make_no_sense) {
  const auto type = KvCache::create(kLayers, TensorType::q4_k, 1);
  ASSERT_FALSE(type);
  EXPECT_EQ(type.error().code, ErrorCode::unsupported);
  const auto count = KvCache::create(kLayers, TensorType::f16, -1);
  ASSERT_FALSE(count);
  EXPECT_EQ(count.error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace cohort
