#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

std::vector<int32_t> page_of(int32_t first) {
  std::vector<int32_t> tokens(kPagePositions);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = first + static_cast<int32_t>(i);
  return tokens;
}

TEST(PrefixTree, FindsWhatWasInsertedUnderItsParentOnly) {
  PagePool pool(4);
  PrefixTree tree(pool);
  const int32_t a = tree.insert(PrefixTree::kRoot, page_of(0), pool.take());
  const int32_t b = tree.insert(a, page_of(7), pool.take());
  EXPECT_EQ(tree.find(PrefixTree::kRoot, page_of(0)), a);
  EXPECT_EQ(tree.find(a, page_of(7)), b);
  EXPECT_EQ(tree.find(PrefixTree::kRoot, page_of(7)), PrefixTree::kNone);
  EXPECT_EQ(tree.find(a, page_of(0)), PrefixTree::kNone);
}

TEST(PrefixTree, EvictsLeavesInOrderOfLastUseAndNothingThatIsHeld) {
  PagePool pool(4);
  PrefixTree tree(pool);
  std::vector<int32_t> pages{pool.take(), pool.take(), pool.take(), pool.take()};
  const int32_t root_page = tree.insert(PrefixTree::kRoot, page_of(0), pages[0]);
  tree.insert(root_page, page_of(1), pages[1]);
  tree.insert(root_page, page_of(2), pages[2]);
  tree.insert(root_page, page_of(3), pages[3]);
  EXPECT_FALSE(tree.evict()) << "all pages are held";
  for (const int32_t page : pages) pool.release(page);
  EXPECT_EQ(pool.available(), 0);
  EXPECT_EQ(pool.reusable(), 4);
  EXPECT_NE(tree.find(root_page, page_of(1)), PrefixTree::kNone);  // now the youngest
  pool.share(pages[2]);
  ASSERT_TRUE(tree.evict());
  EXPECT_EQ(tree.peek(root_page, page_of(3)), PrefixTree::kNone) << "the oldest that nobody holds";
  ASSERT_TRUE(tree.evict());
  EXPECT_EQ(tree.peek(root_page, page_of(1)), PrefixTree::kNone);
  EXPECT_FALSE(tree.evict()) << "what is left is held, or has a child that is";
  pool.release(pages[2]);
  EXPECT_TRUE(tree.evict());
  EXPECT_TRUE(tree.evict());
  EXPECT_EQ(pool.available(), 4);
  EXPECT_EQ(pool.reusable(), 0);
  EXPECT_EQ(tree.size(), 0U);
}

}  // namespace
}  // namespace cohort
