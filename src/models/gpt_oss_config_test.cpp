// gpt-oss's configuration from config.json and from GGUF metadata, its tensors in both layouts, and what is refused.
#include "models/gpt_oss_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "formats/safetensors/safetensors.h"
#include "models/made_slices.h"
#include "models/model.h"
#include "models/test_golden.h"

namespace cohort {
namespace {

using nlohmann::json;

/// Another value at `key`; null removes it.
Expected<ModelConfig> with(const std::string& key, json value, const char* model = "gpt_oss") {
  json config = golden_config(model);
  config[key] = std::move(value);
  return config_from_huggingface(config);
}

Expected<ModelConfig> gguf_with(const std::string& key, const std::optional<gguf::Value>& value) {
  return config_of_gguf_with("gguf/gpt_oss-bf16.gguf", "gpt-oss." + key, value);
}

TEST(GptOssConfig, FoldersAndFileSayTheSame) {
  const auto opened = gguf::File::open(golden("gguf/gpt_oss-bf16.gguf"));
  ASSERT_TRUE(opened);
  for (const auto& config :
       {config_from_huggingface(golden_config("gpt_oss")), config_from_huggingface(golden_config("gpt_oss_mxfp4")),
        config_from_gguf(opened->metadata())}) {
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->architecture, "gpt-oss");
    EXPECT_EQ(config->layers, 3);
    EXPECT_EQ(config->heads, 4);
    EXPECT_EQ(config->kv_heads, 1);
    EXPECT_EQ(config->head_dim, 16);
    EXPECT_EQ(config->rotary_dims, 16);
    EXPECT_EQ(config->sliding.layers, (std::vector<bool>{true, false, true}));
    EXPECT_EQ(config->sliding.window, 8);
    EXPECT_EQ(config->experts, 5);
    EXPECT_EQ(config->top_k, 2);
    EXPECT_EQ(config->expert_inner, 32);
    EXPECT_EQ(config->rms_eps, 1e-5F);
    EXPECT_EQ(config->rope_base, 1e4);
    const RopeScaling& s = config->rope_scaling;
    EXPECT_EQ(s.kind, RopeScaling::Kind::yarn);
    EXPECT_EQ(s.factor, 8);
    EXPECT_EQ(s.original_context, 64);
    EXPECT_NEAR(s.attention_factor, 0.1 * std::log(8.0) + 1, 1e-6);
    EXPECT_FALSE(s.truncate);
  }
}

TEST(GptOssConfig, DefaultsAreThoseOfTransformers) {
  json config = golden_config("gpt_oss");
  for (const char* key :
       {"layer_types", "rope_parameters", "rms_norm_eps", "sliding_window", "swiglu_limit", "swiglu_alpha"})
    config.erase(key);
  const auto out = config_from_huggingface(config);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->sliding.layers, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(out->sliding.window, 128);
  EXPECT_EQ(out->rms_eps, 1e-5F);
  EXPECT_EQ(out->rope_base, 150000);
  EXPECT_EQ(out->rope_scaling.factor, 32);
  EXPECT_FALSE(out->rope_scaling.truncate);
}

/// transformers' rule: without truncation the ramp begins and ends between two pairs.
TEST(GptOssConfig, YarnIsNotTruncated) {
  const auto config = config_from_huggingface(golden_config("gpt_oss"));
  ASSERT_TRUE(config);
  const RopeTable table = make_rope_tables(*config).full;
  ASSERT_EQ(table.frequencies.size(), 8U);
  const auto edge = [](double turns) {
    return 16 * std::log(64 / (turns * 2 * std::numbers::pi)) / (2 * std::log(1e4));
  };
  const double low = std::max(edge(32), 0.0), high = std::min(edge(1), 15.0);
  ASSERT_NE(high, std::floor(high));
  for (size_t i = 0; i < 8; ++i) {
    const double plain = std::pow(1e4, -2.0 * static_cast<double>(i) / 16);
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    EXPECT_NEAR(table.frequencies[i], plain / 8 * ramp + plain * (1 - ramp), 1e-12) << i;
  }
}

TEST(GptOssConfig, WhatIsNotSupportedIsNamed) {
  json truncated = golden_config("gpt_oss")["rope_parameters"], silent = truncated;
  truncated["truncate"] = true;
  silent.erase("truncate");
  struct Case {
    const char* key;
    json value;
    std::string_view message;
  };
  for (const Case& c : std::vector<Case>{
           {"swiglu_limit", 5.0, "swiglu_limit 5 is not supported; expected 7"},
           {"swiglu_alpha", 1.5, "swiglu_alpha 1.5 is not supported; expected 1.702"},
           {"hidden_act", "gelu", "hidden_act 'gelu'"},
           {"attention_bias", false, "attention_bias false"},
           {"layer_types", {"full_attention"}, "a list of 3 names is needed"},
           {"layer_types", {"full_attention", "full_attention", "linear_attention"}, "layer_types has \"linear_"},
           {"layer_types", "sliding", "'layer_types' is \"sliding\""},
           {"sliding_window", 0, "the model's window (sliding_window, attention.sliding_window) is 0"},
           {"sliding_window", -4, "'sliding_window' is -4"},
           {"rope_parameters", truncated, "truncate true is not supported for gpt-oss"},
           {"rope_parameters", silent, "truncate true is not supported for gpt-oss"},
           {"num_local_experts", 0, "number of experts (num_local_experts, expert_count) is 0"},
           {"num_local_experts", nullptr, "num_local_experts"},
           {"num_experts_per_tok", 6, "6 of 5 experts"},
           {"experts_per_token", 3, "num_experts_per_tok is 2 and experts_per_token is 3"},
           {"intermediate_size", 0, "expert width"},
           {"num_key_value_heads", 3, "4 attention heads cannot share 3 KV heads"},
           {"head_dim", 15, "15 rotary dimensions"}}) {
    expect_message(with(c.key, c.value), c.message);
  }
  // Without windows nothing is asked of them.
  json full = golden_config("gpt_oss");
  full["layer_types"] = {"full_attention", "full_attention", "full_attention"};
  full["sliding_window"] = 0;
  EXPECT_TRUE(config_from_huggingface(full));
  // Other families' YaRN is truncated, and their files cannot say otherwise.
  json qwen = golden_config("qwen3_yarn");
  qwen["rope_scaling"]["truncate"] = false;
  expect_message(config_from_huggingface(qwen), "truncate false is not supported for qwen3");
}

TEST(GptOssConfig, NonsenseInGgufIsRefused) {
  using gguf::Value;
  expect_message(gguf_with("attention.sliding_window", std::nullopt), "gpt-oss.attention.sliding_window");
  expect_message(gguf_with("attention.sliding_window", Value(uint32_t{0})), "the model's window");
  expect_message(gguf_with("attention.sliding_window_pattern", Value(std::vector<bool>{true})), "has 1 values");
  expect_message(gguf_with("attention.sliding_window_pattern", Value(int32_t{-1})), "is -1");
  expect_message(gguf_with("expert_count", std::nullopt), "number of experts");
  expect_message(gguf_with("attention.value_length", Value(uint32_t{8})), "different lengths are not supported");
  const auto all = gguf_with("attention.sliding_window_pattern", Value(std::vector<bool>{false, true, true}));
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->sliding.layers, (std::vector<bool>{false, true, true}));
}

TEST(GptOssConfig, AFileWithoutAPartOfTheModelIsRefused) {
  const TestFolder folder;
  EXPECT_TRUE(Model::load(changed_gguf(folder, "gguf/gpt_oss-bf16.gguf", {}), 64));
  for (const std::string tensor :
       {"blk.1.attn_sinks.weight", "blk.0.attn_q.bias", "blk.2.attn_output.bias", "blk.0.ffn_gate_inp.bias",
        "blk.1.ffn_down_exps.bias", "blk.1.ffn_gate_exps.weight", "blk.0.post_attention_norm.weight"}) {
    const auto model = Model::load(changed_gguf(folder, "gguf/gpt_oss-bf16.gguf", {.without = tensor}), 64);
    ASSERT_FALSE(model) << tensor;
    EXPECT_EQ(model.error().code, ErrorCode::corrupt);
    EXPECT_NE(model.error().message.find("'" + tensor + "'"), std::string::npos) << model.error().message;
  }
}

/// The experts of both layouts are the same numbers, gate and up told apart.
TEST(GptOssConfig, BothLayoutsHoldTheSameExperts) {
  const auto floats = Model::load(golden("models/gpt_oss"), 64),
             blocks = Model::load(golden("models/gpt_oss_mxfp4"), 64);
  const auto file = Model::load(golden("gguf/gpt_oss-bf16.gguf"), 64);
  ASSERT_TRUE(floats && blocks && file);
  int compared = 0;
  const auto values = [](const Weight& weight) {
    const SliceHold hold(weight);
    std::vector<float> all, row(static_cast<size_t>(weight.cols));
    for (const std::byte* slice : weight.slices) {
      for (int64_t r = 0; r < weight.rows; ++r) {
        decode_row(weight.type, slice + row_bytes(weight.type, weight.cols) * static_cast<size_t>(r), row.data(),
                   weight.cols);
        all.insert(all.end(), row.begin(), row.end());
      }
    }
    return all;
  };
  for (size_t i = 0; i < (*file)->program().ops.size(); ++i) {
    const auto* expected = std::get_if<op::Experts>(&(*file)->program().ops[i].action);
    if (expected == nullptr) continue;
    for (const auto* model : {&*floats, &*blocks}) {
      const auto& got = std::get<op::Experts>((*model)->program().ops[i].action);
      EXPECT_EQ(got.gate->type, model == &*floats ? TensorType::bf16 : TensorType::mxfp4);
      EXPECT_EQ(values(*got.gate), values(*expected->gate));
      EXPECT_EQ(values(*got.up), values(*expected->up));
      EXPECT_EQ(values(*got.down), values(*expected->down));
      EXPECT_EQ(got.gate_bias->values, expected->gate_bias->values);
      EXPECT_EQ(got.up_bias->values, expected->up_bias->values);
      EXPECT_EQ(got.down_bias->values, expected->down_bias->values);
      EXPECT_NE(got.gate_bias->values, got.up_bias->values);
      ++compared;
    }
  }
  EXPECT_EQ(compared, 6);
}

/// A folder like the golden one whose tensors have other shapes than config.json says.
TEST(GptOssConfig, ShapesThatContradictTheConfigurationAreNamed) {
  for (const auto& [model, key, value, part] :
       {std::tuple{"gpt_oss", "intermediate_size", 64, "gate_up_proj' has shape"},
        {"gpt_oss", "num_local_experts", 4, "mlp.router"},
        {"gpt_oss_mxfp4", "intermediate_size", 64, "gate_up_proj' has U8 blocks"},
        {"gpt_oss_mxfp4", "hidden_size", 96, "has shape"},
        {"gpt_oss", "num_attention_heads", 8, "has shape"}}) {
    const TestFolder folder;
    json config = golden_config(model);
    config[key] = value;
    folder.write("config.json", config.dump());
    for (const auto& entry : std::filesystem::directory_iterator(golden(std::string("models/") + model))) {
      if (entry.path().filename() != "config.json")
        std::filesystem::create_symlink(entry.path(), folder / entry.path().filename().string());
    }
    expect_message(Model::load(folder.path(), 64), part);
  }
}

}  // namespace
}  // namespace cohort
