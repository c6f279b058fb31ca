// The CPU backend against the reference backend, whole programs, bit for bit.
#include "kernels/cpu/backend.h"

#include <gtest/gtest.h>

#include <bit>

#include "kernels/cpu/random_model.h"
#include "kernels/reference/backend.h"
#include "kv/cache.h"

namespace cohort {
namespace {

ModelConfig small_config(const std::string& architecture) {
  ModelConfig c;
  c.architecture = architecture;
  c.name = "random";
  c.layers = 2;
  c.hidden = 256;
  c.heads = 8;
  c.kv_heads = 2;
  c.head_dim = 64;
  c.rotary_dims = 64;
  c.vocabulary = 150;
  c.context = 512;
  c.inner = 512;
  return c;
}

ModelConfig moe_config(const std::string& architecture, int32_t experts, int32_t top_k) {
  ModelConfig c = small_config(architecture);
  c.experts = experts;
  c.top_k = top_k;
  c.expert_inner = 256;
  return c;
}

/// A sequence of steps: each gives the rows of every sequence, and which of them are sampled.
struct Step {
  std::vector<int32_t> rows;  // by sequence; 0: not in this step
  bool sample_all;
};

struct Steps {
  std::vector<Batch> batches;
  std::vector<std::vector<int32_t>> pages;  // by sequence
};

Steps make_batches(const std::vector<Step>& steps, int32_t vocabulary) {
  Steps out;
  const size_t sequences = steps.front().rows.size();
  out.pages.resize(sequences);
  int32_t page = 0;
  for (int32_t i = 0; i < 16; ++i) {
    for (auto& pages : out.pages) pages.push_back(page++);
  }
  std::vector<int32_t> position(sequences, 0);
  uint32_t draw = 0;
  for (const Step& step : steps) {
    Batch batch;
    for (size_t s = 0; s < sequences; ++s) {
      if (step.rows[s] == 0) continue;
      const auto used = static_cast<size_t>((position[s] + step.rows[s] + kPagePositions - 1) / kPagePositions);
      batch.sequences.push_back({batch.rows(), step.rows[s], position[s], std::span(out.pages[s]).first(used)});
      for (int32_t i = 0; i < step.rows[s]; ++i) {
        batch.tokens.push_back(static_cast<int32_t>(uniform(3, 0, draw++, 0) * static_cast<float>(vocabulary)));
        batch.positions.push_back(position[s]++);
        if (step.sample_all || i + 1 == step.rows[s]) batch.sampled_rows.push_back(batch.rows() - 1);
      }
    }
    out.batches.push_back(std::move(batch));
  }
  return out;
}

/// What the reference gives for the steps of a program: slow, so once for all backends that are compared with it.
struct Reference {
  const Program& program;
  Steps steps;
  std::vector<std::vector<float>> logits;
  std::vector<StepStats> stats;
};

Reference reference_of(const Program& program, const std::vector<Step>& steps) {
  Reference expected{program, make_batches(steps, program.vocabulary), {}, {}};
  auto reference = make_reference_backend(program, {.threads = 2});
  EXPECT_TRUE(reference->allocate_cache(TensorType::f16, 256));
  for (const Batch& batch : expected.steps.batches) {
    expected.logits.emplace_back(batch.sampled_rows.size() * static_cast<size_t>(program.vocabulary));
    expected.stats.push_back(reference->run(batch, expected.logits.back()).value());
  }
  return expected;
}

void expect_same(const Reference& expected, const CpuOptions& options, const std::string& what) {
  const Program& program = expected.program;
  auto cpu = make_cpu_backend(program, options);
  ASSERT_TRUE(cpu) << cpu.error().message;
  ASSERT_TRUE((*cpu)->allocate_cache(TensorType::f16, 256));
  for (size_t i = 0; i < expected.steps.batches.size(); ++i) {
    const Batch& batch = expected.steps.batches[i];
    std::vector<float> got(expected.logits[i].size());
    const auto stats = (*cpu)->run(batch, got);
    ASSERT_TRUE(stats);
    EXPECT_EQ(stats->rows, batch.rows());
    EXPECT_EQ(stats->distinct_experts, expected.stats[i].distinct_experts);
    for (size_t j = 0; j < got.size(); ++j) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[j]), std::bit_cast<uint32_t>(expected.logits[i][j]))
          << what << ", " << isa_name(options.isa) << ", " << options.threads << " threads, step " << i
          << ", sampled row " << j / static_cast<size_t>(program.vocabulary) << ", token "
          << j % static_cast<size_t>(program.vocabulary) << ": " << got[j] << " instead of " << expected.logits[i][j];
    }
  }
}

const std::vector<Step> kSteps = {{{5, 0, 1}, false}, {{1, 20, 1}, true}, {{1, 1, 0}, false}, {{1, 1, 17}, true}};

TEST(CpuBackend, MixtureOfExpertsEqualsTheReference) {
  for (TensorType type : {TensorType::q4_0, TensorType::q8_0, TensorType::q4_k, TensorType::q6_k, TensorType::f32}) {
    auto model = testing::random_model(moe_config("qwen3moe", 16, 4), [type](const std::string& name) {
      if (name.find("ffn_gate_inp") != std::string::npos) return TensorType::f32;
      return type;
    });
    ASSERT_TRUE(model) << model.error().message;
    const Reference expected = reference_of((*model)->program, kSteps);
    for (Isa isa : available_isas()) {
      for (int threads : {1, 3})
        expect_same(expected, {.isa = isa, .threads = threads}, std::string(type_info(type).name));
    }
  }
}

TEST(CpuBackend, MixedTypesInOneModelEqualTheReference) {
  // The mixes of Q4_K_M and worse: float experts beside quantised ones, a quantised router, an odd vocabulary.
  const std::vector<std::pair<std::string, TensorType>> types = {
      {"attn_v", TensorType::q6_k},      {"attn_q", TensorType::q5_k},        {"attn_k", TensorType::f16},
      {"attn_output", TensorType::q5_0}, {"ffn_gate_inp", TensorType::q8_0},  {"ffn_gate_exps", TensorType::q4_k},
      {"ffn_up_exps", TensorType::bf16}, {"ffn_down_exps", TensorType::q6_k}, {"token_embd", TensorType::q6_k},
      {"output", TensorType::q4_1}};
  auto config = moe_config("qwen3moe", 8, 3);
  config.vocabulary = 163;
  auto model = testing::random_model(config, [&](const std::string& name) {
    for (const auto& [part, type] : types) {
      if (name.find(part) != std::string::npos) return type;
    }
    return TensorType::q5_1;
  });
  ASSERT_TRUE(model) << model.error().message;
  const Reference expected = reference_of((*model)->program, kSteps);
  for (Isa isa : available_isas()) expect_same(expected, {.isa = isa, .threads = 2}, "mixed types");
}

TEST(CpuBackend, OtherFamiliesEqualTheReference) {
  for (const char* family : {"qwen3", "qwen2", "llama"}) {
    auto model = testing::random_model(
        small_config(family), [](const std::string&) { return TensorType::q4_0; }, std::string(family) == "qwen2");
    ASSERT_TRUE(model) << model.error().message;
    const Reference expected = reference_of((*model)->program, kSteps);
    for (Isa isa : available_isas()) expect_same(expected, {.isa = isa, .threads = 2}, family);
  }
  auto mixtral = moe_config("llama", 8, 2);
  mixtral.rope_pairing = RopePairing::adjacent;
  auto model = testing::random_model(mixtral, [](const std::string&) { return TensorType::q5_0; });
  ASSERT_TRUE(model) << model.error().message;
  expect_same(reference_of((*model)->program, kSteps), {.threads = 2}, "mixtral");
}

/// Windows on every other layer, sinks, biases of everything, clamped gates, YaRN.
TEST(CpuBackend, GptOssEqualsTheReference) {
  auto config = moe_config("gpt-oss", 8, 3);
  config.sliding.layers = {true, false};
  config.sliding.window = 8;
  config.rope_scaling = {RopeScaling::Kind::yarn, 8, 64, 1, 4, 32, 1, 1.2, false};
  const std::vector<std::pair<TensorType, TensorType>> types = {{TensorType::mxfp4, TensorType::q8_0},
                                                                {TensorType::mxfp4, TensorType::bf16},
                                                                {TensorType::bf16, TensorType::bf16},
                                                                {TensorType::q4_k, TensorType::q6_k}};
  for (const auto& [experts, others] : types) {
    auto model = testing::random_model(config, [&](const std::string& name) {
      if (name.find("ffn_gate_inp") != std::string::npos) return TensorType::f32;
      return name.find("_exps") != std::string::npos ? experts : others;
    });
    ASSERT_TRUE(model) << model.error().message;
    const Reference expected = reference_of((*model)->program, kSteps);
    for (Isa isa : available_isas()) {
      for (int threads : {1, 3})
        expect_same(expected, {.isa = isa, .threads = threads}, std::string(type_info(experts).name));
    }
  }
}

/// Each of what the family adds changes the logits, so the equality above compares something.
TEST(CpuBackend, SinksWindowsAndBiasesCount) {
  const auto logits = [](const Program& program) { return reference_of(program, {{{20}, false}}).logits.front(); };
  auto config = moe_config("gpt-oss", 4, 2);
  config.sliding.layers = {true, false};
  config.sliding.window = 8;
  auto model = testing::random_model(config, [](const std::string&) { return TensorType::f32; });
  ASSERT_TRUE(model) << model.error().message;
  const auto all = logits((*model)->program);
  const auto without = [&](const auto& change) {
    Program program = (*model)->program;
    for (Op& op : program.ops) change(op);
    return logits(program);
  };
  const auto attend = [](Op& op) { return std::get_if<op::Attend>(&op.action); };
  const auto experts = [](Op& op) { return std::get_if<op::Experts>(&op.action); };
  EXPECT_NE(all, without([&](Op& op) {
              if (auto* a = attend(op)) a->sinks = nullptr;
            }));
  EXPECT_NE(all, without([&](Op& op) {
              if (auto* a = attend(op)) a->window = 0;
            }));
  EXPECT_NE(all, without([&](Op& op) {
              if (auto* r = std::get_if<op::Route>(&op.action)) r->bias = nullptr;
            }));
  EXPECT_NE(all, without([&](Op& op) {
              if (auto* e = experts(op)) e->gate_bias = nullptr;
            }));
  EXPECT_NE(all, without([&](Op& op) {
              if (auto* e = experts(op)) e->up_bias = nullptr;
            }));
  EXPECT_NE(all, without([&](Op& op) {
              if (auto* e = experts(op)) e->down_bias = nullptr;
            }));
  EXPECT_NE(all, without([&](Op& op) {
              if (auto* e = experts(op)) e->activation = Activation::silu;
            }));
  EXPECT_EQ(all, without([](Op&) {}));
}

TEST(CpuBackend, RoutingExtremesEqualTheReference) {
  struct Case {
    int32_t experts, top_k;
  };
  for (const Case& c : {Case{1, 1}, Case{16, 16}, Case{512, 8}, Case{5, 2}}) {
    auto config = moe_config("qwen3moe", c.experts, c.top_k);
    config.layers = 1;
    config.expert_inner = 32;
    auto model = testing::random_model(config, [](const std::string& name) {
      return name.find("ffn_gate_inp") != std::string::npos ? TensorType::f32 : TensorType::q4_0;
    });
    ASSERT_TRUE(model) << model.error().message;
    expect_same(reference_of((*model)->program, {{{70, 1}, false}, {{1, 1}, true}}), {.threads = 2},
                fmt::format("{} experts top {}", c.experts, c.top_k));
  }
}

TEST(CpuBackend, ARowIsTheSameAloneAndInCompany) {
  auto model =
      testing::random_model(moe_config("qwen3moe", 16, 4), [](const std::string&) { return TensorType::q4_0; });
  ASSERT_TRUE(model) << model.error().message;
  const Program& program = (*model)->program;
  const auto vocabulary = static_cast<size_t>(program.vocabulary);
  const Steps together =
      make_batches({{std::vector<int32_t>(9, 33), true}, {std::vector<int32_t>(9, 1), true}}, program.vocabulary);
  auto backend = make_cpu_backend(program, {.threads = 2});
  ASSERT_TRUE(backend);
  ASSERT_TRUE((*backend)->allocate_cache(TensorType::bf16, 256));
  for (const Batch& batch : together.batches) {
    std::vector<float> all(batch.sampled_rows.size() * vocabulary);
    ASSERT_TRUE((*backend)->run(batch, all));
    for (const SequenceRows& sequence : batch.sequences) {
      Batch alone;
      alone.sequences.push_back({0, sequence.rows, sequence.first_position, sequence.pages});
      for (int32_t r = 0; r < sequence.rows; ++r) {
        const auto row = static_cast<size_t>(sequence.first_row) + static_cast<size_t>(r);
        alone.tokens.push_back(batch.tokens[row]);
        alone.positions.push_back(batch.positions[row]);
        alone.sampled_rows.push_back(r);
      }
      std::vector<float> one(alone.sampled_rows.size() * vocabulary);
      ASSERT_TRUE((*backend)->run(alone, one));
      EXPECT_EQ(0, std::memcmp(one.data(), all.data() + static_cast<size_t>(sequence.first_row) * vocabulary,
                               one.size() * sizeof(float)));
    }
  }
}

TEST(CpuBackend, ProfileCountsEveryOperation) {
  auto model =
      testing::random_model(moe_config("qwen3moe", 16, 4), [](const std::string&) { return TensorType::q4_0; });
  ASSERT_TRUE(model);
  const Program& program = (*model)->program;
  auto backend = make_cpu_backend(program, {.threads = 2});
  ASSERT_TRUE(backend && (*backend)->allocate_cache(TensorType::f16, 64));
  const Steps steps = make_batches({{{3}, false}}, program.vocabulary);
  std::vector<float> logits(static_cast<size_t>(program.vocabulary));
  cpu::StepProfile profile;
  (*backend)->set_profile(&profile);
  const auto stats = (*backend)->run(steps.batches[0], logits);
  ASSERT_TRUE(stats);
  EXPECT_EQ(profile.steps, 1);
  double bytes = 0;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    EXPECT_GT(profile.ops[i].jobs, 0) << program.ops[i].name;
    bytes += profile.ops[i].bytes;
  }
  EXPECT_DOUBLE_EQ(bytes, stats->bytes);
  EXPECT_GT(profile.seconds, 0);
  EXPECT_FALSE((*backend)->plan_text().empty());
}

TEST(CpuBackend, BadOptionsAreRefused) {
  auto model = testing::random_model(small_config("qwen3"), [](const std::string&) { return TensorType::q4_0; });
  ASSERT_TRUE(model);
  for (int threads : {-1, 1025, 1000000}) {
    const auto backend = make_cpu_backend((*model)->program, {.threads = threads});
    ASSERT_FALSE(backend);
    EXPECT_EQ(backend.error().code, ErrorCode::invalid_argument);
  }
  for (Isa isa : {Isa::avx2, Isa::avx512, Isa::amx, Isa::neon}) {
    if (has_isa(isa)) continue;
    const auto backend = make_cpu_backend((*model)->program, {.isa = isa});
    ASSERT_FALSE(backend);
    EXPECT_EQ(backend.error().code, ErrorCode::unsupported);
  }
}

}  // namespace
}  // namespace cohort
