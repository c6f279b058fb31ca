#include "kernels/cpu/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "kernels/cpu/test_values.h"
#include "kernels/reference/attention.h"

namespace cohort::cpu {
namespace {

using test::same;
using test::Values;
using Vector = std::vector<float>;

// Rows [first_position, first_position + rows) of a sequence whose first `shared_pages` pages are those of the
// sequence before it.
struct Timeline {
  int32_t first_position, rows, shared_pages = 0;
  bool canvas = false;
};

struct Case {
  op::Attend attend;
  std::vector<Timeline> timelines;
  TensorType type = TensorType::f16;
  Values values = Values::ordinary;
};

std::string describe(const Case& c) {
  std::string text =
      fmt::format("heads {}/{} dim {} window {} type {} values {} rows", c.attend.heads, c.attend.kv_heads,
                  c.attend.head_dim, c.attend.window, static_cast<int>(c.type), static_cast<int>(c.values));
  for (const Timeline& t : c.timelines) text += fmt::format(" {}+{}{}", t.first_position, t.rows, t.canvas ? "c" : "");
  return text;
}

// A cache whose every byte is NaN until it is appended to, so that reading an invisible position shows.
struct World {
  std::vector<CacheLayer> layers;
  KvCache cache;
  std::vector<std::vector<int32_t>> pages;
  Batch batch;
  Vector q, k, v;

  explicit World(const Case& c) {
    layers = {{2, 16, 0}, {c.attend.kv_heads, c.attend.head_dim, c.attend.window}};
    int32_t used = 0;
    for (const Timeline& t : c.timelines) {
      const int32_t needed = (t.first_position + t.rows + kPagePositions - 1) / kPagePositions;
      std::vector<int32_t> own;
      own.reserve(static_cast<size_t>(needed));
      for (int32_t i = 0; i < needed; ++i)
        own.push_back(i < t.shared_pages ? pages.back()[static_cast<size_t>(i)] : used++);
      pages.push_back(own);
    }
    for (auto& own : pages) {
      for (int32_t& page : own) page = used - 1 - page;  // not in ascending order
    }
    auto made = KvCache::create(layers, c.type, used);
    EXPECT_TRUE(made);
    cache = std::move(*made);
    for (int32_t layer = 0; layer < 2; ++layer) {
      const size_t bytes = cache.page_bytes({layers[static_cast<size_t>(layer)]}, c.type);
      for (int32_t page = 0; page < used; ++page) std::memset(cache.keys(layer, page), 0xff, bytes);
    }
    // What was there before this step.
    const int64_t width = int64_t{c.attend.kv_heads} * c.attend.head_dim;
    Batch past;
    for (size_t s = 0; s < pages.size(); ++s) {
      past.sequences.push_back({past.rows(), c.timelines[s].first_position, 0, pages[s]});
      past.tokens.resize(past.tokens.size() + static_cast<size_t>(c.timelines[s].first_position));
    }
    const Vector past_k = test::values(c.values, past.rows() * width, 1);
    const Vector past_v = test::values(c.values, past.rows() * width, 2);
    reference::append_kv(c.attend, past, past_k.data(), past_v.data(), cache);
    for (size_t s = 0; s < pages.size(); ++s) {
      batch.sequences.push_back(
          {batch.rows(), c.timelines[s].rows, c.timelines[s].first_position, pages[s], c.timelines[s].canvas});
      batch.tokens.resize(batch.tokens.size() + static_cast<size_t>(c.timelines[s].rows));
    }
    q = test::values(c.values, int64_t{batch.rows()} * c.attend.heads * c.attend.head_dim, 3);
    k = test::values(c.values, batch.rows() * width, 4);
    v = test::values(c.values, batch.rows() * width, 5);
  }

  std::vector<std::byte> bytes(int32_t layer) {
    std::vector<std::byte> all;
    const size_t size = KvCache::page_bytes({layers[static_cast<size_t>(layer)]}, cache.type());
    for (int32_t page = 0; page < cache.pages(); ++page) {
      all.insert(all.end(), cache.keys(layer, page), cache.keys(layer, page) + size);
    }
    return all;
  }
};

struct Aligned {
  explicit Aligned(size_t floats) : data(new (std::align_val_t{64}) float[floats]) {
    std::fill_n(data, floats, std::nanf(""));
  }
  ~Aligned() { operator delete[](data, std::align_val_t{64}); }
  float* data;
};

Vector run(const Case& c, World& world, Isa isa, int threads) {
  const AttentionKernels& kernels = attention_kernels(isa);
  Vector out(world.q.size(), 12345.0F);
  const AttentionPlan plan(c.attend, world.batch, kernels, threads);
  EXPECT_TRUE(plan.fits(c.attend));
  Aligned scratch(plan.scratch_floats()), shared(plan.shared_floats());
  const AttentionCall call =
      make_attention_call(c.attend, world.batch, world.cache, world.q.data(), out.data(), shared.data);
  for (const SequenceRows& sequence : world.batch.sequences) {
    const int32_t half = sequence.rows / 2;  // in two parts, the later one first
    kernels.append(call, sequence, half, sequence.rows - half, world.k.data(), world.v.data());
    kernels.append(call, sequence, 0, half, world.k.data(), world.v.data());
  }
  for (const AttentionJob& job : plan.jobs())
    kernels.run(call, job, &job + 1 < plan.jobs().data() + plan.jobs().size() ? &job + 1 : nullptr, scratch.data);
  for (const AttentionJob& job : plan.merges()) kernels.merge(call, job);
  return out;
}

void check(const Case& c) {
  SCOPED_TRACE(describe(c));
  World expected(c);
  Vector out(expected.q.size());
  reference::append_kv(c.attend, expected.batch, expected.k.data(), expected.v.data(), expected.cache);
  reference::attend(c.attend, expected.batch, expected.q.data(), expected.cache, out.data());
  for (Isa isa : available_isas()) {
    for (int threads : {1, 5, 200}) {
      SCOPED_TRACE(std::string(isa_name(isa)) + " threads " + std::to_string(threads));
      World world(c);
      ASSERT_TRUE(same(run(c, world, isa, threads), out));
      if (c.values != Values::special) {  // NaN payloads may differ
        ASSERT_EQ(world.bytes(1), expected.bytes(1));
      }
      ASSERT_EQ(world.bytes(0), expected.bytes(0));
    }
  }
}

op::Attend shape(int32_t heads, int32_t kv_heads, int32_t head_dim, int32_t window = 0) {
  return {1, heads, kv_heads, head_dim, 1.0F / std::sqrt(static_cast<float>(head_dim)), window};
}

TEST(attention, head_dims_and_groups) {
  for (int32_t head_dim : {16, 24, 32, 40, 64, 72, 80, 100, 128, 256, 512}) {
    check({shape(4, 2, head_dim), {{70, 1}, {0, 5}}});
  }
  for (int32_t group : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24}) {
    check({shape(2 * group, 2, 32), {{70, 1}, {20, 3}}});
    check({shape(group, 1, 24), {{41, 2}}});
  }
}

TEST(attention, cache_types_and_values) {
  for (TensorType type : {TensorType::f32, TensorType::f16, TensorType::bf16, TensorType::q8_0}) {
    for (Values values : test::kAllValues) {
      check({shape(4, 2, 48), {{300, 1}, {12, 7}, {0, 1}}, type, values});
      check({shape(3, 3, 20), {{270, 2}}, type, values});
      check({shape(8, 1, 16, 33), {{250, 20}}, type, values});
    }
  }
}

TEST(attention, q8_0_cache_of_all_head_sizes_and_groups) {
  for (int32_t head_dim : {16, 24, 32, 40, 64, 72, 80, 100, 128, 256}) {
    check({shape(4, 2, head_dim), {{70, 1}, {0, 5}, {31, 40}}, TensorType::q8_0});
  }
  for (int32_t group : {1, 2, 3, 4, 7, 8, 12, 16})
    check({shape(2 * group, 2, 64), {{70, 1}, {20, 3}}, TensorType::q8_0});
  for (int32_t position : {0, 15, 16, 31, 32, 63, 64, 255, 256, 511, 800})
    check({shape(4, 1, 32), {{position, 1}, {position, 3}}, TensorType::q8_0});
  for (int32_t window : {1, 16, 33, 300}) check({shape(2, 1, 48, window), {{250, 30}, {700, 1}}, TensorType::q8_0});
}

TEST(attention, decode_across_splits_and_segments) {
  for (int32_t position : {0, 1, 15, 16, 31, 32, 63, 64, 127, 191, 255, 256, 257, 319, 511, 512, 800, 1300}) {
    check({shape(4, 1, 32), {{position, 1}}});
    check({shape(2, 2, 16), {{position, 3}}});
  }
}

TEST(attention, prefill_across_splits) {
  check({shape(2, 1, 16), {{0, 600}}});
  check({shape(8, 1, 16), {{200, 150}}});
  check({shape(1, 1, 32), {{230, 130}}});
  check({shape(3, 1, 24), {{0, 70}, {500, 40}}});
}

TEST(attention, windows) {
  for (int32_t window : {1, 2, 15, 16, 17, 63, 64, 100, 256, 300}) {
    check({shape(2, 1, 16, window), {{250, 30}, {0, 4}, {700, 1}, {511, 2}}});
    check({shape(8, 1, 16, window), {{320, 12}}});
  }
  check({shape(1, 1, 16, 40), {{0, 400}}});
}

TEST(attention, sinks) {
  for (Values values : test::kAllValues) {
    const VectorWeight sinks{"sinks", test::values(values, 24, 9)};
    const auto with = [&](op::Attend attend) {
      attend.sinks = &sinks;
      return attend;
    };
    for (TensorType type : {TensorType::f32, TensorType::f16, TensorType::bf16, TensorType::q8_0}) {
      check({with(shape(8, 2, 64)), {{300, 1}, {12, 7}, {0, 1}}, type, values});
      check({with(shape(8, 1, 64, 128)), {{250, 20}, {1000, 1}, {127, 2}}, type, values});
    }
    check({with(shape(24, 3, 24)), {{600, 1}, {0, 300}}, TensorType::f16, values});
    check({with(shape(6, 6, 40, 5)), {{3, 40}, {90, 12, 0, true}}, TensorType::f16, values});
  }
}

TEST(attention, canvases_beside_causal_rows) {
  for (int32_t window : {0, 1, 2, 17, 64, 100, 300}) {
    check({shape(2, 1, 16, window), {{250, 30, 0, true}, {0, 4}, {0, 12, 0, true}, {511, 2}, {700, 64, 0, true}}});
    check({shape(8, 1, 16, window), {{320, 256, 0, true}, {41, 1}}});
  }
  check({shape(4, 2, 40, 50), {{90, 33, 0, true}, {90, 33}}, TensorType::q8_0});
  check({shape(1, 1, 32), {{65, 1, 0, true}}, TensorType::bf16});
}

TEST(attention, a_canvas_row_sees_the_same_whoever_comes_with_it) {
  const Case alone{shape(2, 1, 16, 40), {{70, 20, 0, true}}};
  World one(alone);
  Vector expected(one.q.size());
  reference::append_kv(alone.attend, one.batch, one.k.data(), one.v.data(), one.cache);
  reference::attend(alone.attend, one.batch, one.q.data(), one.cache, expected.data());
  // The last row of a canvas is a causal row that sees all of it, but for the window, which counts from the first.
  const Case causal{shape(2, 1, 16, 40 + 19), {{70, 20}}};
  World other(causal);
  Vector out(other.q.size());
  reference::append_kv(causal.attend, other.batch, other.k.data(), other.v.data(), other.cache);
  reference::attend(causal.attend, other.batch, other.q.data(), other.cache, out.data());
  const auto row = static_cast<std::ptrdiff_t>(out.size() - 32);
  EXPECT_TRUE(std::equal(out.begin() + row, out.end(), expected.begin() + row));
  EXPECT_FALSE(std::equal(out.begin(), out.begin() + 32, expected.begin()));
}

TEST(attention, many_sequences_at_mixed_positions_with_shared_pages) {
  uint32_t draw = 0;
  const auto pick = [&](uint32_t below) {
    return static_cast<int32_t>(philox4x32({draw++, 0, 0, 0}, {1, 2})[0] % below);
  };
  for (int round = 0; round < 12; ++round) {
    const int32_t kv_heads = 1 + pick(3), group = 1 + pick(9), head_dim = 16 + 8 * pick(5);
    Case c{shape(kv_heads * group, kv_heads, head_dim, pick(2) == 0 ? 0 : 1 + pick(400)), {}};
    c.type =
        std::vector{TensorType::f32, TensorType::f16, TensorType::bf16, TensorType::q8_0}[static_cast<size_t>(pick(4))];
    const int32_t sequences = 1 + pick(6);
    for (int32_t s = 0; s < sequences; ++s) {
      Timeline t{pick(round % 3 == 0 ? 700 : 90), 1 + (pick(3) == 0 ? pick(40) : 0)};
      if (s > 0)
        t.shared_pages = pick(std::min(c.timelines.back().first_position, t.first_position) / kPagePositions + 1);
      t.canvas = pick(3) == 0;
      c.timelines.push_back(t);
    }
    check(c);
  }
}

TEST(attention, plan_covers_every_row_once_and_splits_only_when_few) {
  const AttentionKernels& kernels = attention_kernels(Isa::scalar);
  std::vector<int32_t> pages(400, 0);
  Batch batch;
  for (int32_t s = 0; s < 3; ++s) batch.sequences.push_back({s, 1, 5000 * s, pages});
  batch.tokens.resize(3);
  const auto attend = shape(32, 4, 128);
  for (int threads : {1, 2, 16, 128}) {
    const AttentionPlan plan(attend, batch, kernels, threads);
    std::vector<int32_t> splits(3 * 4);
    for (const AttentionJob& job : plan.jobs()) {
      const int32_t at = job.sequence * 4 + job.kv_head;
      splits[static_cast<size_t>(at)] += job.splits;
    }
    for (int32_t s = 0; s < 3; ++s) {
      for (int32_t h = 0; h < 4; ++h) EXPECT_EQ(splits[static_cast<size_t>(s * 4 + h)], 5000 * s / kSplitPositions + 1);
    }
    EXPECT_TRUE(std::ranges::is_sorted(plan.jobs(), [](const auto& a, const auto& b) { return a.cost > b.cost; }));
    if (threads == 1) {
      EXPECT_LE(plan.merges().size(), 8U);
    }
    if (threads == 128) {
      EXPECT_GE(plan.jobs().size(), 200U);
    }
  }
  EXPECT_FALSE(AttentionPlan(attend, batch, kernels, 1).fits(shape(32, 4, 128, 5)));
}

}  // namespace
}  // namespace cohort::cpu
