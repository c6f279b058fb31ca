// Importance files: both forms, there and back, and what is wrong with broken ones.
#include "formats/imatrix/imatrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "base/file.h"
#include "base/test_folder.h"

namespace cohort {
namespace {

ImportanceMatrix example() {
  ImportanceMatrix m;
  m.entries["blk.0.attn_q.weight"] = {3, 1, {2, 4, 6}, {2}};
  m.entries["blk.0.ffn_up_exps.weight"] = {2, 3, {1, 2, 0, 0, 9, 12}, {1, 0, 3}};
  m.datasets = {"text.txt"};
  m.chunks = 5;
  m.chunk_size = 512;
  return m;
}

TEST(imatrix, gate_and_up_of_experts_are_found_apart_and_together) {
  ImportanceMatrix apart, together;
  apart.entries["blk.0.ffn_gate_exps.weight"] = {1, 1, {5}, {1}};
  apart.entries["blk.0.ffn_up_exps.weight"] = {1, 1, {6}, {1}};
  together.entries["blk.0.ffn_gate_up_exps.weight"] = {1, 1, {7}, {1}};
  EXPECT_EQ(apart.find("blk.0.ffn_gate_up_exps.weight"), apart.find("blk.0.ffn_gate_exps.weight"));
  ASSERT_NE(apart.find("blk.0.ffn_gate_up_exps.weight"), nullptr);
  for (const char* name : {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"}) {
    ASSERT_NE(together.find(name), nullptr);
    EXPECT_EQ(together.find(name)->square_sums[0], 7);
  }
  EXPECT_EQ(apart.find("blk.0.ffn_up_exps.weight")->square_sums[0], 6);
  for (const char* name : {"blk.1.ffn_gate_up_exps.weight", "blk.1.ffn_up_exps.weight", "blk.0.ffn_down_exps.weight"}) {
    EXPECT_EQ(apart.find(name), nullptr);
    EXPECT_EQ(together.find(name), nullptr);
  }
}

std::string message_of(const std::filesystem::path& path) {
  const auto read = read_importance(path);
  return read ? std::string() : read.error().message;
}

TEST(imatrix, gguf_there_and_back) {
  const TestFolder folder;
  const auto path = folder / "m.gguf";
  ASSERT_TRUE(write_importance(example(), path, importance_format(path)).has_value());
  const auto read = read_importance(path);
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(read->chunks, 5U);
  EXPECT_EQ(read->chunk_size, 512U);
  EXPECT_EQ(read->datasets, std::vector<std::string>{"text.txt"});
  ASSERT_EQ(read->entries.size(), 2U);
  const Importance* experts = read->find("blk.0.ffn_up_exps.weight");
  ASSERT_NE(experts, nullptr);
  EXPECT_EQ(experts->cols, 2);
  EXPECT_EQ(experts->experts, 3);
  EXPECT_TRUE(experts->routed(0));
  EXPECT_FALSE(experts->routed(1));
  EXPECT_EQ(experts->means(2), (std::vector<float>{3, 4}));
  EXPECT_EQ(experts->means(1), (std::vector<float>{0, 0}));
}

TEST(imatrix, the_older_form_keeps_means) {
  const TestFolder folder;
  const auto path = folder / "m.dat";
  ASSERT_EQ(importance_format(path), ImportanceFormat::legacy);
  ASSERT_TRUE(write_importance(example(), path, ImportanceFormat::legacy).has_value());
  // The bytes of the field: i32 entries, then name, calls, values.
  const std::string bytes = *read_text_file(path);
  int32_t first[2];
  std::memcpy(first, bytes.data(), sizeof first);
  EXPECT_EQ(first[0], 2);
  EXPECT_EQ(first[1], 19);
  EXPECT_EQ(bytes.substr(8, 19), "blk.0.attn_q.weight");
  const auto read = read_importance(path);
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(read->chunks, 5U);
  EXPECT_EQ(read->find("blk.0.attn_q.weight")->means(0), (std::vector<float>{1, 2, 3}));
  // All experts in one row; the one without data counts as one.
  EXPECT_EQ(read->find("blk.0.ffn_up_exps.weight")->means(0), (std::vector<float>{1, 2, 1, 1, 3, 4}));
}

TEST(imatrix, broken_files_are_refused) {
  const TestFolder folder;
  const auto good_path = folder / "m.dat";
  ASSERT_TRUE(write_importance(example(), good_path, ImportanceFormat::legacy).has_value());
  const std::string good = *read_text_file(good_path);
  for (size_t length = 0; length < good.size(); ++length) {
    // Files of the first writers end after the entries or after the number of chunks.
    const size_t tail = good.size() - length;
    if (tail == 12 || tail == 16) continue;
    EXPECT_NE(message_of(folder.write("cut.dat", good.substr(0, length))), "") << length;
  }
  std::string bad = good;
  const float negative = -1;
  std::memcpy(bad.data() + 8 + 19 + 8, &negative, 4);
  EXPECT_NE(message_of(folder.write("negative.dat", bad)).find("-1"), std::string::npos);
  ImportanceMatrix infinite = example();
  infinite.entries.begin()->second.square_sums[0] = INFINITY;
  ASSERT_TRUE(write_importance(infinite, folder / "inf.gguf", ImportanceFormat::gguf).has_value());
  EXPECT_NE(message_of(folder / "inf.gguf").find("inf"), std::string::npos);
}

}  // namespace
}  // namespace cohort
