// How canvases are cut into submissions and units of attention, and what they take of a device; asks none.
#ifdef COHORT_HAS_CUDA

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/cuda/needs.h"
#include "kernels/cuda/step_writer.h"
#include "kernels/cuda/units.h"
#include "kv/cache.h"

namespace cohort::cuda {
namespace {

/// Sequences on pages of their own; all rows of canvases are sampled.
class Rows {
 public:
  void add(int32_t first_position, int32_t rows, bool canvas) {
    auto& pages = pages_.emplace_back(static_cast<size_t>((first_position + rows - 1) / kPagePositions + 1));
    std::iota(pages.begin(), pages.end(), static_cast<int32_t>(100 * pages_.size()));
    batch_.sequences.push_back({batch_.rows(), rows, first_position, pages, canvas});
    for (int32_t r = 0; r < rows; ++r) {
      if (canvas) batch_.sampled_rows.push_back(batch_.rows());
      batch_.tokens.push_back(r);
      batch_.positions.push_back(first_position + r);
    }
  }
  const Batch& batch() const { return batch_; }

 private:
  std::vector<std::vector<int32_t>> pages_;
  Batch batch_;
};

Limits limits_for(int32_t rows, int32_t canvas) {
  Limits limits;
  limits.rows = rows;
  limits.canvas = canvas;
  limits.places = 4;
  return limits;
}

std::vector<int32_t> words_of(const StepWriter& writer, const Rows& rows, const Limits& limits, int32_t group_rows) {
  std::vector<int32_t> out(static_cast<size_t>(StepWriter::most_words(limits)));
  writer.write(rows.batch(), writer.next_part(rows.batch(), 0, 0), group_rows, 1, out.data());
  return out;
}

TEST(cuda_canvases, rows_see_their_whole_canvas) {
  Rows rows;
  rows.add(250, 12, true);
  rows.add(300, 1, false);
  const Limits limits = limits_for(128, 12);
  const StepWriter writer(limits, {0, 16});
  const std::vector<int32_t> words = words_of(writer, rows, limits, 1);
  // Two splits for every row: of a canvas from 0 or 235 to 262, and of a row at 300 from 0; one from 285.
  EXPECT_EQ(words[kUnits], 26);
  EXPECT_EQ(words[kUnits + 1], 25);
  EXPECT_TRUE(StepWriter::has_canvas(rows.batch(), writer.next_part(rows.batch(), 0, 0)));
  const int32_t pages = words[kPages], first = kHeaderWords + 3 * words[kRows] + words[kSampled] + pages;
  int canvas_units = 0;
  for (int32_t u = 0; u < words[kUnits] + words[kUnits + 1]; ++u) {
    const int32_t* unit = words.data() + first + u * kUnitWords;
    if (unit[kUnitRow] == 12) {
      EXPECT_EQ(unit[kUnitPosition], 300);
      EXPECT_EQ(unit_ahead(unit[kUnitRows]), 0);
      continue;
    }
    ++canvas_units;
    EXPECT_EQ(unit[kUnitPosition], 250);
    EXPECT_EQ(unit_ahead(unit[kUnitRows]), 11);
    EXPECT_EQ(unit[kUnitPages + 7], unit[kUnitSplit] == 0 ? 107 : 108);
  }
  EXPECT_EQ(canvas_units, 48);
}

TEST(cuda_canvases, other_rows_are_grouped_as_before) {
  Rows rows;
  rows.add(250, 12, false);
  const Limits limits = limits_for(128, 0);
  const StepWriter writer(limits, {0});
  const std::vector<int32_t> words = words_of(writer, rows, limits, 16);
  EXPECT_EQ(words[kUnits], 3);  // six rows of one split, six of two
  EXPECT_EQ(words[kTileUnits], 3);
  EXPECT_FALSE(StepWriter::has_canvas(rows.batch(), writer.next_part(rows.batch(), 0, 0)));
  const int32_t* unit = words.data() + kHeaderWords + 3 * 12 + words[kPages];
  for (int u = 0; u < 3; ++u) EXPECT_EQ(unit[u * kUnitWords + kUnitRows], 6);
}

TEST(cuda_canvases, are_never_cut) {
  Rows rows;
  rows.add(0, 20, false);
  for (int i = 0; i < 3; ++i) rows.add(40, 60, true);
  rows.add(0, 30, false);
  const StepWriter writer(limits_for(128, 60), {0});
  std::vector<int32_t> ends;
  for (int32_t begin = 0, sampled = 0; begin < rows.batch().rows();) {
    const StepPart part = writer.next_part(rows.batch(), begin, sampled);
    ASSERT_GT(part.rows(), 0);
    EXPECT_EQ(part.sampled(), std::ranges::count_if(rows.batch().sampled_rows,
                                                    [&](int32_t r) { return r >= part.begin && r < part.end; }));
    ends.push_back(begin = part.end);
    sampled = part.last_sampled;
  }
  EXPECT_EQ(ends, (std::vector<int32_t>{80, 208, 230}));  // 20 + 60; 60 + 60 + 8 of the prompt; the rest
}

TEST(cuda_canvases, that_fit_no_step_are_no_part) {
  Rows rows;
  rows.add(0, 61, true);
  EXPECT_EQ(StepWriter(limits_for(128, 60), {0}).next_part(rows.batch(), 0, 0).rows(), 0);
  EXPECT_EQ(StepWriter(limits_for(128, 61), {0}).next_part(rows.batch(), 0, 0).rows(), 61);
  Limits few = limits_for(128, 61);
  few.sampled = 60;
  EXPECT_EQ(StepWriter(few, {0}).next_part(rows.batch(), 0, 0).rows(), 0);
}

TEST(cuda_canvases, that_do_not_fit_a_device_say_how_many_do) {
  const Limits limits = limits_for(2048, 256);
  constexpr int32_t kVocabulary = 1000;
  const size_t each = thought_bytes(thoughts_of(kVocabulary, 256));
  EXPECT_EQ(each, size_t{256} * (1024 + 1) * 4);
  DeviceNeeds needs;
  needs.fixed = 4 * each + 1000;
  needs.cache_least = 500;
  EXPECT_TRUE(check_canvas_room(needs, limits, kVocabulary, 4 * each + 1500));
  const auto refused = check_canvas_room(needs, limits, kVocabulary, 3 * each + 1500);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::capacity);
  for (const char* part : {"the canvases of 4 streams", "enough for 3: run fewer streams (-np)"})
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  // Then something else is too large, and says so itself.
  EXPECT_TRUE(check_canvas_room(needs, limits, kVocabulary, each));
}

}  // namespace
}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
