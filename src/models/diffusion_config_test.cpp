// The rules of block diffusion from GGUF metadata, config.json and generation_config.json, and what is refused.
#include "models/diffusion_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "formats/gguf/gguf.h"
#include "models/model.h"
#include "models/test_golden.h"

namespace cohort {
namespace {

using nlohmann::json;

TEST(DiffusionConfig, FolderAndFileSayTheSame) {
  for (const char* path : {"models/diffusion_gemma", "gguf/diffusion_gemma-bf16.gguf"}) {
    const auto model = Model::load(golden(path), 64);
    ASSERT_TRUE(model) << model.error().message;
    const ModelConfig& c = (*model)->config();
    EXPECT_EQ(c.architecture, "diffusion-gemma");
    EXPECT_EQ(c.diffusion.canvas_length, 12);
    EXPECT_EQ(c.diffusion.max_steps, 48);
    EXPECT_EQ(c.diffusion.entropy_bound, 0.1F);
    EXPECT_EQ(c.experts, 4);
    EXPECT_EQ(c.sliding.window, 8);
  }
  const auto other = Model::load(golden("gguf/gemma4-bf16.gguf"), 64);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ((*other)->config().diffusion.canvas_length, 0);
}

TEST(DiffusionConfig, KeysOfTheFileCount) {
  gguf::Metadata metadata;
  DiffusionRules rules;
  expect_message(read_diffusion_from_gguf(metadata, rules), "diffusion.canvas_length");
  ASSERT_TRUE(metadata.add("diffusion.canvas_length", gguf::Value(uint32_t{64})));
  ASSERT_TRUE(metadata.add("diffusion.eb_max_steps", gguf::Value(uint32_t{20})));
  ASSERT_TRUE(metadata.add("diffusion.eb_t_min", gguf::Value(0.25F)));
  ASSERT_TRUE(metadata.add("diffusion.eb_t_max", gguf::Value(0.75F)));
  ASSERT_TRUE(metadata.add("diffusion.eb_entropy_bound", gguf::Value(0.5F)));
  ASSERT_TRUE(metadata.add("diffusion.eb_stability_threshold", gguf::Value(uint32_t{2})));
  ASSERT_TRUE(metadata.add("diffusion.eb_confidence_threshold", gguf::Value(0.125F)));
  ASSERT_TRUE(read_diffusion_from_gguf(metadata, rules));
  EXPECT_EQ(rules.canvas_length, 64);
  EXPECT_EQ(rules.max_steps, 20);
  EXPECT_EQ(rules.t_min, 0.25F);
  EXPECT_EQ(rules.t_max, 0.75F);
  EXPECT_EQ(rules.entropy_bound, 0.5F);
  EXPECT_EQ(rules.stability, 2);
  EXPECT_EQ(rules.confidence, 0.125F);

  for (const auto& [key, value] : {std::pair{"diffusion.canvas_length", gguf::Value(uint32_t{0})},
                                   {"diffusion.eb_max_steps", gguf::Value(uint32_t{0})},
                                   {"diffusion.eb_t_min", gguf::Value(-1.0F)},
                                   {"diffusion.eb_confidence_threshold", gguf::Value(std::nanf(""))}}) {
    gguf::Metadata bad;
    ASSERT_TRUE(bad.add(key, value));
    if (std::string_view(key) != "diffusion.canvas_length") {
      ASSERT_TRUE(bad.add("diffusion.canvas_length", gguf::Value(uint32_t{8})));
    }
    DiffusionRules out;
    expect_message(read_diffusion_from_gguf(bad, out), key);
  }
}

TEST(DiffusionConfig, GenerationConfigCounts) {
  const json config = json::parse(R"({"max_denoising_steps": 30, "t_min": 0.1, "t_max": 0.5, "stability_threshold": 0,
      "confidence_threshold": 0.02, "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.3}})");
  DiffusionRules rules;
  ASSERT_TRUE(read_diffusion_from_generation_config(config, rules));
  EXPECT_EQ(rules.max_steps, 30);
  EXPECT_EQ(rules.t_min, 0.1F);
  EXPECT_EQ(rules.t_max, 0.5F);
  EXPECT_EQ(rules.stability, 0);
  EXPECT_EQ(rules.confidence, 0.02F);
  EXPECT_EQ(rules.entropy_bound, 0.3F);
  expect_message(read_diffusion_from_generation_config(json::parse(R"({"max_denoising_steps": 0})"), rules),
                 "generation_config.json: 'max_denoising_steps' is 0");
  expect_message(read_diffusion_from_generation_config(json::parse(R"({"sampler_config": 3})"), rules),
                 "sampler_config");
}

}  // namespace
}  // namespace cohort
