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

TEST(cuda_needs, what_no_kernel_computes_is_declined_by_name) {
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
  ASSERT_FALSE(needs);
  if (needs.error().message.find("built without CUDA") != std::string::npos) GTEST_SKIP();
  EXPECT_EQ(needs.error().code, ErrorCode::unsupported);
  EXPECT_NE(needs.error().message.find("attention sinks"), std::string::npos) << needs.error().message;
  EXPECT_NE(needs.error().message.find("--device cpu"), std::string::npos) << needs.error().message;
}

}  // namespace
}  // namespace cohort
