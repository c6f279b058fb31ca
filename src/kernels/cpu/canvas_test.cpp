// Rows of canvases in whole programs: the CPU backend against the reference, bit for bit, and alone against company.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/random_model.h"
#include "kernels/reference/backend.h"
#include "kv/pages.h"

namespace cohort {
namespace {

constexpr int32_t kCanvas = 20, kPages = 24;

ModelConfig config_of(int32_t hidden) {
  ModelConfig c;
  c.architecture = "diffusion-gemma";
  c.name = "random";
  c.layers = 2;
  c.hidden = hidden;
  c.heads = 4;
  c.kv_heads = 1;
  c.head_dim = c.rotary_dims = 64;
  c.sliding = {{true, false}, 16, 2, 32, 32, 1e4};
  c.vocabulary = 150;
  c.context = 256;
  c.inner = 256;
  c.expert_inner = 256;
  c.experts = 4;
  c.top_k = 2;
  c.logit_softcap = 30;
  c.diffusion.canvas_length = kCanvas;
  return c;
}

/// One row thinks of every token, one of a single one, one of nothing; the others of some.
std::vector<Mixture> random_mixtures(uint32_t seed, int32_t vocabulary) {
  std::vector<Mixture> out(kCanvas);
  for (uint32_t row = 0; row < kCanvas; ++row) {
    for (int32_t token = 0; token < vocabulary; ++token) {
      const float u = uniform(seed, row, static_cast<uint32_t>(token), 0);
      const bool there = row == 3 || (row == 5 && token == 77) || (row > 6 && u < 0.02F * static_cast<float>(row));
      if (!there) continue;
      out[row].tokens.push_back(token);
      out[row].weights.push_back(u * u);
    }
  }
  return out;
}

struct Rows {
  int32_t first_position, rows;
  bool canvas;
  std::vector<Mixture> mixtures = {};
  std::vector<int32_t> pages = {};
};

Batch batch_of(const std::vector<const Rows*>& all, int32_t vocabulary) {
  Batch batch;
  for (const Rows* rows : all) {
    batch.sequences.push_back(
        {batch.rows(), rows->rows, rows->first_position, rows->pages, rows->canvas, rows->mixtures});
    for (int32_t r = 0; r < rows->rows; ++r) {
      const int32_t position = rows->first_position + r;
      if (rows->canvas) batch.sampled_rows.push_back(batch.rows());
      batch.tokens.push_back((position * 37 + rows->pages[0]) % vocabulary);
      batch.positions.push_back(position);
    }
  }
  return batch;
}

std::vector<float> run(Backend& backend, const Batch& batch, int32_t vocabulary) {
  std::vector<float> logits(batch.sampled_rows.size() * static_cast<size_t>(vocabulary));
  EXPECT_TRUE(backend.run(batch, logits));
  return logits;
}

void check(int32_t hidden, TensorType type, TensorType table) {
  SCOPED_TRACE(std::string(type_info(type).name) + ", table " + std::string(type_info(table).name));
  const ModelConfig config = config_of(hidden);
  auto model = testing::random_model(config, [&](const std::string& name) {
    if (name.find("ffn_gate_inp") != std::string::npos) return TensorType::f32;
    if (name.find("attn_output") != std::string::npos) return TensorType::q8_0;  // too narrow for K-quants
    return name == "token_embd" ? table : type;
  });
  ASSERT_TRUE(model) << model.error().message;
  const Program& program = (*model)->program;
  // Three timelines: two with canvases, one of them with what it thought before; the third is read meanwhile.
  std::vector<Rows> past{{0, 20, false}, {0, 37, false}, {0, 5, false}};
  std::vector<Rows> now{{20, kCanvas, true}, {37, kCanvas, true, random_mixtures(3, config.vocabulary)}, {5, 9, false}};
  int32_t next = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    for (int32_t p = 0; p < pages_for(now[i].first_position + now[i].rows); ++p) now[i].pages.push_back(next++);
    past[i].pages = now[i].pages;
  }
  const Batch before = batch_of({&past[0], &past[1], &past[2]}, config.vocabulary);
  const Batch together = batch_of({&now[0], &now[1], &now[2]}, config.vocabulary);
  const auto reference = make_reference_backend(program, {.threads = 2});
  ASSERT_TRUE(reference->allocate_cache(TensorType::f16, kPages));
  run(*reference, before, config.vocabulary);
  const std::vector<float> expected = run(*reference, together, config.vocabulary);
  const auto half = static_cast<std::ptrdiff_t>(expected.size() / 2);
  const std::vector<float> first(expected.begin(), expected.begin() + half);
  const std::vector<float> second(expected.begin() + half, expected.end());
  EXPECT_EQ(run(*reference, batch_of({&now[0]}, config.vocabulary), config.vocabulary), first);
  for (const Isa isa : available_isas()) {
    for (const int threads : isa == best_isa() ? std::vector<int>{1, 3} : std::vector<int>{2}) {
      auto cpu = make_cpu_backend(program, {.isa = isa, .threads = threads});
      ASSERT_TRUE(cpu) << cpu.error().message;
      ASSERT_TRUE((*cpu)->allocate_cache(TensorType::f16, kPages));
      run(**cpu, before, config.vocabulary);
      EXPECT_EQ(run(**cpu, together, config.vocabulary), expected) << isa_name(isa) << " " << threads;
      EXPECT_EQ(run(**cpu, batch_of({&now[1]}, config.vocabulary), config.vocabulary), second) << isa_name(isa);
      EXPECT_EQ(run(**cpu, batch_of({&now[2], &now[0]}, config.vocabulary), config.vocabulary), first) << isa_name(isa);
    }
  }
  // What was thought before, the neighbours of a row and the kind of row all count.
  Rows forgetful = now[1];
  forgetful.mixtures.clear();
  EXPECT_NE(run(*reference, batch_of({&forgetful}, config.vocabulary), config.vocabulary), second);
  Rows shorter = now[0];
  --shorter.rows;
  const auto cut = run(*reference, batch_of({&shorter}, config.vocabulary), config.vocabulary);
  EXPECT_NE(std::vector<float>(first.begin(), first.end() - config.vocabulary), cut);
}

TEST(canvas_rows, equal_the_reference_and_themselves_in_company) {
  check(320, TensorType::q4_0, TensorType::q8_0);
  check(320, TensorType::f16, TensorType::bf16);
  check(256, TensorType::q4_k, TensorType::q6_k);
}

TEST(canvas_rows, are_described_by_the_program) {
  auto model = testing::random_model(config_of(320), [](const std::string&) { return TensorType::q8_0; });
  ASSERT_TRUE(model) << model.error().message;
  const std::string text = to_text((*model)->program);
  for (const char* part : {"self_cond_mix", "self_cond ", "canvas blk.1.layer_output_scale.weight", "times 17.88"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  auto cpu = make_cpu_backend((*model)->program, {.threads = 1});
  ASSERT_TRUE(cpu);
  EXPECT_NE((*cpu)->plan_text().find("mix      self_cond_mix"), std::string::npos) << (*cpu)->plan_text();
}

}  // namespace
}  // namespace cohort
