// What a model takes of a device, found where there is none.
#include <gtest/gtest.h>

#include "kernels/cpu/random_model.h"
#include "kernels/cuda/backend.h"

namespace cohort {
namespace {

constexpr int64_t kHidden = 256, kInner = 512, kVocabulary = 320;

std::unique_ptr<testing::RandomModel> model(int32_t experts, TensorType type) {
  ModelConfig c;
  c.architecture = "qwen3moe";
  c.layers = 3;
  c.hidden = kHidden;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = c.rotary_dims = 64;
  c.vocabulary = kVocabulary;
  c.context = 64;
  c.inner = c.expert_inner = kInner;
  c.experts = experts;
  c.top_k = 2;
  return std::move(*testing::random_model(c, [type](const std::string&) { return type; }));
}

TEST(cuda_needs, experts_are_counted_as_the_device_holds_them) {
  const auto random = model(8, TensorType::q4_0);
  const auto needs = cuda_memory_needs(random->program, 256);
  if (!needs && needs.error().message.find("built without CUDA") != std::string::npos) GTEST_SKIP();
  ASSERT_TRUE(needs) << needs.error().message;
  ASSERT_EQ(needs->layers.size(), 3U);
  for (const ExpertLayer& layer : needs->layers) {
    EXPECT_EQ(layer.experts, 8);
    EXPECT_EQ(layer.bytes, 3 * row_bytes(TensorType::q4_0, kHidden) * kInner);
  }
  // At least attention, the router and head of every layer; nothing of seven experts of eight.
  const size_t dense =
      3 * row_bytes(TensorType::q4_0, kHidden) * 768 + row_bytes(TensorType::q4_0, kHidden) * kVocabulary;
  EXPECT_GT(needs->fixed, dense);
}

TEST(cuda_needs, what_is_not_experts_does_not_grow_with_them) {
  const auto few = cuda_memory_needs(model(8, TensorType::q8_0)->program, 256);
  const auto many = cuda_memory_needs(model(16, TensorType::q8_0)->program, 256);
  if (!few && few.error().message.find("built without CUDA") != std::string::npos) GTEST_SKIP();
  ASSERT_TRUE(few && many);
  EXPECT_EQ(few->layers[0].bytes, many->layers[0].bytes);
  EXPECT_GE(many->fixed, few->fixed);
  EXPECT_LT(many->fixed, few->fixed + few->layers[0].bytes);
}

TEST(cuda_needs, longer_steps_need_more) {
  const auto random = model(8, TensorType::bf16);
  const auto brief = cuda_memory_needs(random->program, 256), longer = cuda_memory_needs(random->program, 512);
  if (!brief && brief.error().message.find("built without CUDA") != std::string::npos) GTEST_SKIP();
  ASSERT_TRUE(brief && longer);
  EXPECT_EQ(brief->layers[0].bytes, longer->layers[0].bytes);
  EXPECT_GT(longer->fixed, brief->fixed + 256 * kHidden * sizeof(float));
}

TEST(cuda_needs, biases_of_experts_go_where_their_experts_are) {
  ModelConfig c;
  c.architecture = "gpt-oss";
  c.layers = 2;
  c.hidden = c.expert_inner = 64;
  c.heads = c.kv_heads = 1;
  c.head_dim = c.rotary_dims = 64;
  c.vocabulary = kVocabulary;
  c.context = 64;
  c.experts = 4;
  c.top_k = 2;
  c.sliding.layers = {true, false};
  c.sliding.window = 8;
  const auto random = testing::random_model(c, [](const std::string&) { return TensorType::bf16; });
  ASSERT_TRUE(random) << random.error().message;
  const auto needs = cuda_memory_needs((*random)->program, 256);
  if (!needs && needs.error().message.find("built without CUDA") != std::string::npos) GTEST_SKIP();
  ASSERT_TRUE(needs) << needs.error().message;
  ASSERT_EQ(needs->layers.size(), 2U);
  // Three matrices of 64 rows, whose 64 bf16 values take a block of 128, and a float for each of those rows.
  EXPECT_EQ(needs->layers[0].bytes, size_t{3} * 64 * (128 * 2 + 4));
}

std::unique_ptr<testing::RandomModel> canvas_model(int32_t hidden, TensorType type) {
  ModelConfig c;
  c.architecture = "diffusion-gemma";
  c.layers = 2;
  c.hidden = hidden;
  c.heads = 4;
  c.kv_heads = 1;
  c.head_dim = c.rotary_dims = 64;
  c.sliding = {{true, false}, 16, 2, 32, 32, 1e4};
  c.vocabulary = kVocabulary;
  c.context = 64;
  c.inner = c.expert_inner = 256;
  c.experts = 4;
  c.top_k = 2;
  c.logit_softcap = 30;
  c.diffusion.canvas_length = 20;
  return std::move(*testing::random_model(c, [type](const std::string& name) {
    return name.find("ffn_gate_inp") != std::string::npos ? TensorType::f32 : type;
  }));
}

TEST(cuda_needs, every_stream_has_a_canvas) {
  const auto random = canvas_model(256, TensorType::q4_0);
  const auto one = cuda_memory_needs(random->program, 256, 20, 1),
             four = cuda_memory_needs(random->program, 256, 20, 4);
  if (!one && one.error().message.find("built without CUDA") != std::string::npos) GTEST_SKIP();
  ASSERT_TRUE(one) << one.error().message;
  ASSERT_TRUE(four) << four.error().message;
  // A weight for every token that a row may hold, in chunks of 256, and a bit for 32 of them.
  EXPECT_EQ(four->fixed - one->fixed, size_t{3} * 20 * (512 + 1) * 4);
  // Logits of 13 canvases need more than the 256 rows that any step may sample.
  const auto many = cuda_memory_needs(random->program, 512, 20, 20),
             more = cuda_memory_needs(random->program, 512, 20, 21);
  ASSERT_TRUE(many && more);
  EXPECT_GT(more->fixed - many->fixed, size_t{20} * (512 + 1 + kVocabulary) * 4);
}

TEST(cuda_needs, what_canvases_need_is_said) {
  const auto random = canvas_model(256, TensorType::q4_0);
  const auto unknown = cuda_memory_needs(random->program, 256);
  if (!unknown && unknown.error().message.find("built without CUDA") != std::string::npos) GTEST_SKIP();
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::unsupported);
  EXPECT_NE(unknown.error().message.find("'self_cond_mix' is for rows of canvases"), std::string::npos)
      << unknown.error().message;
  const auto odd = cuda_memory_needs(canvas_model(322, TensorType::f16)->program, 256, 20, 1);
  ASSERT_FALSE(odd);
  EXPECT_NE(odd.error().message.find("multiple of 4"), std::string::npos) << odd.error().message;
}

}  // namespace
}  // namespace cohort
