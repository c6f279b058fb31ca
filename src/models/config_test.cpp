// Configurations from config.json and from GGUF metadata, and what is refused.
#include "models/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "formats/gguf/gguf.h"
#include "models/test_golden.h"

namespace cohort {
namespace {

using nlohmann::json;

TEST(Config, NonsenseInJsonIsRefused) {
  struct Case {
    const char* key;
    json value;
    std::string_view message;
  };
  for (const Case& c : std::vector<Case>{
           {"rms_norm_eps", 1e12,
            "RMS norm epsilon (rms_norm_eps, attention.layer_norm_rms_epsilon) is 1e+12; it must "
            "be above 0 and at most 0.1; correct it in config.json"},
           {"rms_norm_eps", 0, "is 0; it must be above 0"},
           {"rms_norm_eps", -1e-6, "it must be above 0"},
           {"rms_norm_eps", "1e-6", "a number is needed"},
           {"rope_theta", 0, "rotary base (rope_theta, rope.freq_base) is 0; it must be above 1 and at most 1e+12"},
           {"rope_theta", -1e4, "is -10000; it must be above 1"},
           {"rope_theta", 1e300, "is 1e+300; it must be above 1"},
           {"architectures", "Qwen3MoeForCausalLM",
            "'architectures' is \"Qwen3MoeForCausalLM\"; a list of class names is needed"},
           {"architectures", {1}, "'architectures' is [1]"},
           {"num_hidden_layers", 0, "number of layers (num_hidden_layers, block_count) is 0; it must be at least 1"},
           {"num_hidden_layers", -1, "'num_hidden_layers' is -1"},
           {"num_hidden_layers", true, "an integer is needed"},
           {"hidden_size", 1LL << 40, "'hidden_size' is 1099511627776; expected 0 to 16777216"},
           {"num_attention_heads", 3, "3 attention heads"},
           {"num_key_value_heads", 0, "number of KV heads"},
           {"head_dim", 7, "7 rotary dimensions"},
           {"vocab_size", 0, "vocabulary (vocab_size"},
           {"max_position_embeddings", 0, "context length"},
           {"num_experts_per_tok", 6, "6 of 5 experts are used per token (num_experts_per_tok"},
           {"moe_intermediate_size", 0, "expert width"}}) {
    json config = golden_config("qwen3_moe");
    if (c.key == std::string_view("num_attention_heads")) config["num_key_value_heads"] = 2;
    config[c.key] = c.value;
    expect_message(config_from_huggingface(config), c.message);
  }
  EXPECT_TRUE(config_from_huggingface(golden_config("qwen3_moe")));
}

TEST(Config, NonsenseInRopeScalingIsRefused) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}};
  const json llama3 = {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
  struct Case {
    json scaling;
    const char* key;
    json value;
    std::string_view message;
  };
  for (const Case& c :
       std::vector<Case>{{yarn, "factor", 0, "rotary scaling factor (factor, rope.scaling.factor) is 0"},
                         {yarn, "original_max_position_embeddings", 0, "original context"},
                         {yarn, "beta_slow", 64, "beta_fast (rope.scaling.yarn_beta_fast) is 32; it must be above 64"},
                         {yarn, "attention_factor", -1, "attention factor"},
                         {yarn, "truncate", false, "truncate false is not supported"},
                         {yarn, "rope_type", "longrope", "rope_type 'longrope' is not supported"},
                         {llama3, "high_freq_factor", 1, "high_freq_factor is 1; it must be above 1"},
                         {llama3, "low_freq_factor", 0, "low_freq_factor is 0"},
                         {llama3, "factor", nullptr, "'factor' is missing"}}) {
    json config = golden_config("qwen3_moe");
    config["rope_scaling"] = c.scaling;
    EXPECT_TRUE(config_from_huggingface(config));
    config["rope_scaling"][c.key] = c.value;
    expect_message(config_from_huggingface(config), c.message);
  }
}

/// The metadata of a golden file with other values; a null removes the key.
gguf::Metadata changed(const std::vector<std::pair<std::string, std::optional<gguf::Value>>>& changes) {
  const auto file = gguf::File::open(golden("gguf/qwen3-f32.gguf"));
  EXPECT_TRUE(file);
  gguf::Metadata out;
  for (const gguf::Metadata::Entry& entry : file->metadata().entries()) {
    const bool replaced = std::ranges::any_of(changes, [&](const auto& change) { return change.first == entry.first; });
    if (replaced) continue;
    EXPECT_TRUE(out.add(entry.first, entry.second));
  }
  for (const auto& [key, value] : changes) {
    if (!value) continue;
    EXPECT_TRUE(out.add(key, *value));
  }
  return out;
}

TEST(Config, NonsenseInGgufIsRefused) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string eps = "qwen3.attention.layer_norm_rms_epsilon", base = "qwen3.rope.freq_base";
  for (const float value : {1e12F, 0.0F, -1.0F, nan, std::numeric_limits<float>::infinity()}) {
    expect_message(config_from_gguf(changed({{eps, gguf::Value(value)}})), "RMS norm epsilon");
  }
  for (const float value : {0.0F, -1e4F, 1.0F, nan, std::numeric_limits<float>::infinity()}) {
    expect_message(config_from_gguf(changed({{base, gguf::Value(value)}})), "rotary base");
  }
  expect_message(config_from_gguf(changed({{"qwen3.block_count", gguf::Value(uint32_t{0})}})), "number of layers");
  EXPECT_TRUE(config_from_gguf(changed({})));
}

// ---- rotary scaling ----

TEST(Config, YarnFromJson) {
  json config = golden_config("qwen3");
  const auto yarn = [&](const json& more) {
    json scaling = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}};
    scaling.update(more);
    config.erase("rope_parameters");
    config["rope_scaling"] = scaling;
    auto out = config_from_huggingface(config);
    EXPECT_TRUE(out) << out.error().message;
    return out->rope_scaling;
  };
  const double own = 0.1 * std::log(4.0) + 1;
  EXPECT_DOUBLE_EQ(yarn(json::object()).attention_factor, own);
  EXPECT_DOUBLE_EQ(yarn({{"attention_factor", 1.25}}).attention_factor, 1.25);
  EXPECT_DOUBLE_EQ(yarn({{"mscale", 2.0}, {"mscale_all_dim", 0.5}}).attention_factor,
                   (0.2 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1));
  EXPECT_EQ(yarn({{"factor", nullptr}}).factor, 512 / 128.0);
  EXPECT_EQ(yarn({{"beta_fast", 16}}).beta_fast, 16);
}

TEST(Config, YarnFromGguf) {
  const std::string p = "qwen3.rope.scaling.";
  const auto f32 = [](double value) { return gguf::Value(static_cast<float>(value)); };
  std::vector<std::pair<std::string, std::optional<gguf::Value>>> yarn{
      {p + "type", gguf::Value(std::string("yarn"))},
      {p + "factor", f32(4)},
      {p + "original_context_length", gguf::Value(uint32_t{128})}};
  const auto with = [&](std::vector<std::pair<std::string, std::optional<gguf::Value>>> more) {
    more.insert(more.begin(), yarn.begin(), yarn.end());
    return config_from_gguf(changed(more));
  };
  const double own = 0.1 * std::log(4.0) + 1;
  auto config = with({});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->rope_scaling.kind, RopeScaling::Kind::yarn);
  EXPECT_EQ(config->rope_scaling.original_context, 128);
  EXPECT_EQ(config->rope_scaling.beta_fast, 32);
  EXPECT_EQ(config->rope_scaling.beta_slow, 1);
  EXPECT_DOUBLE_EQ(config->rope_scaling.attention_factor, own);
  config = with({{p + "attn_factor", f32(0.5)}, {p + "yarn_beta_fast", f32(16)}, {p + "yarn_beta_slow", f32(2)}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_DOUBLE_EQ(config->rope_scaling.attention_factor, own / 2);
  EXPECT_EQ(config->rope_scaling.beta_fast, 16);
  EXPECT_EQ(config->rope_scaling.beta_slow, 2);
  EXPECT_EQ(make_rope_tables(*config).full.magnitude, static_cast<float>(own / 2));
  config = with({{p + "yarn_attn_factor", f32(1.25)}});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->rope_scaling.attention_factor, 1.25);
  expect_message(with({{p + "yarn_ext_factor", f32(0.5)}}), "'qwen3.rope.scaling.yarn_ext_factor' is 0.5; only 1");
  expect_message(with({{p + "yarn_log_multiplier", f32(0.1)}}), "yarn_log_multiplier' is 0.1");
  expect_message(with({{p + "yarn_beta_slow", f32(64)}}), "beta_fast");
}

TEST(Config, LinearScalingInItsOldAndNewKeys) {
  for (const char* key : {"qwen3.rope.scale_linear", "qwen3.rope.scaling.factor"}) {
    const auto config = config_from_gguf(changed({{key, gguf::Value(8.0F)}}));
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->rope_scaling.kind, RopeScaling::Kind::linear);
    EXPECT_EQ(config->rope_scaling.factor, 8);
  }
  const auto none = config_from_gguf(changed({{"qwen3.rope.scaling.type", gguf::Value(std::string("none"))},
                                              {"qwen3.rope.scaling.factor", gguf::Value(8.0F)}}));
  ASSERT_TRUE(none);
  EXPECT_EQ(none->rope_scaling.kind, RopeScaling::Kind::none);
}

}  // namespace
}  // namespace cohort
