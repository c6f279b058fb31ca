// Gemma 4's configuration from config.json and from GGUF metadata, and what is refused.
#include "models/gemma_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/model.h"
#include "models/test_golden.h"

namespace cohort {
namespace {

using nlohmann::json;

/// Another value at text_config's `key`.
Expected<ModelConfig> with(const std::string& key, json value) {
  json config = golden_config("gemma4");
  config["text_config"][key] = std::move(value);
  return config_from_huggingface(config);
}

TEST(GemmaConfig, FolderAndFileSayTheSame) {
  const auto folder = config_from_huggingface(golden_config("gemma4"));
  ASSERT_TRUE(folder) << folder.error().message;
  const auto opened = gguf::File::open(golden("gguf/gemma4-bf16.gguf"));
  ASSERT_TRUE(opened);
  const auto file = config_from_gguf(opened->metadata());
  ASSERT_TRUE(file) << file.error().message;
  for (const ModelConfig* c : {&*folder, &*file}) {
    EXPECT_EQ(c->architecture, "gemma4");
    EXPECT_EQ(c->layers, 3);
    EXPECT_EQ(c->heads, 2);
    EXPECT_EQ(c->kv_heads, 1);
    EXPECT_EQ(c->head_dim, 32);
    EXPECT_EQ(c->rotary_dims, 32);
    EXPECT_EQ(c->rope_base, 1e6);
    EXPECT_EQ(c->sliding.layers, (std::vector<bool>{true, true, false}));
    EXPECT_EQ(c->sliding.window, 8);
    EXPECT_EQ(c->sliding.kv_heads, 2);
    EXPECT_EQ(c->sliding.head_dim, 16);
    EXPECT_EQ(c->sliding.rotary_dims, 16);
    EXPECT_EQ(c->sliding.rope_base, 1e4);
    EXPECT_EQ(c->inner, 32);
    EXPECT_EQ(c->experts, 4);
    EXPECT_EQ(c->top_k, 2);
    EXPECT_EQ(c->expert_inner, 16);
    EXPECT_EQ(c->logit_softcap, 30.0F);
    EXPECT_TRUE(c->keys_as_values);
  }
  EXPECT_EQ(folder->turning_pairs, 4);
}

TEST(GemmaConfig, DefaultsAreThoseOfTransformers) {
  json config = golden_config("gemma4");
  for (const char* key : {"layer_types", "rope_parameters", "sliding_window", "final_logit_softcapping"})
    config["text_config"].erase(key);
  config["text_config"]["num_hidden_layers"] = 8;
  const auto out = config_from_huggingface(config);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->sliding.layers, (std::vector<bool>{true, true, true, true, true, false, true, false}));
  EXPECT_EQ(out->sliding.window, 512);
  EXPECT_EQ(out->turning_pairs, 4);
  EXPECT_EQ(out->rope_base, 1e6);
  EXPECT_EQ(out->logit_softcap, 0);
}

TEST(GemmaConfig, HeadsOfFullLayersFromTheTableOfNewerFiles) {
  json config = golden_config("gemma4");
  json& text = config["text_config"];
  text.erase("global_head_dim");
  text.erase("num_global_key_value_heads");
  text["per_layer_config"] = {{"2", {{"head_dim", 24}, {"num_key_value_heads", 1}}}};
  const auto out = config_from_huggingface(config);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->head_dim, 24);
  EXPECT_EQ(out->kv_heads, 1);
  text["per_layer_config"]["0"] = {{"head_dim", 12}};
  expect_message(config_from_huggingface(config), "layer 0 has 2 KV heads of 12");
}

TEST(GemmaConfig, WhatIsNotSupportedIsNamed) {
  struct Case {
    const char* key;
    json value;
    std::string_view message;
  };
  const json rope = golden_config("gemma4")["text_config"]["rope_parameters"];
  json yarn = rope, partial = rope, share = rope;
  yarn["full_attention"]["rope_type"] = "yarn";
  partial["sliding_attention"]["partial_rotary_factor"] = 0.5;
  share["full_attention"]["partial_rotary_factor"] = 1.5;
  for (const Case& c : std::vector<Case>{
           {"hidden_size_per_layer_input", 256, "hidden_size_per_layer_input is 256; embeddings for each layer"},
           {"hidden_size_per_layer_input", nullptr, "hidden_size_per_layer_input is 256"},  // transformers' default
           {"num_kv_shared_layers", 2, "num_kv_shared_layers is 2; keys and values shared by layers"},
           {"use_bidirectional_attention", "all", "use_bidirectional_attention 'all'"},
           {"attention_bias", true, "attention_bias true"},
           {"hidden_activation", "silu", "hidden_activation 'silu'"},
           {"layer_types", {"full_attention"}, "a list of 3 names is needed"},
           {"layer_types", {"chunked", "chunked", "chunked"}, "layer_types has \"chunked\""},
           {"rope_parameters", yarn, "rope_type 'yarn'"},
           {"rope_parameters", partial, "partial_rotary_factor 0.5 is not supported"},
           {"rope_parameters", share, "partial_rotary_factor is 1.5"},
           {"sliding_window", 0, "the model's window (sliding_window, attention.sliding_window) is 0"},
           {"num_key_value_heads", 3, "2 attention heads cannot share 3 KV heads of sliding layers"},
           {"head_dim", 7, "7 rotary dimensions (rope.dimension_count_swa)"},
           {"final_logit_softcapping", -1, "softcap of logits (final_logit_softcapping) is -1"},
           {"intermediate_size", 0, "feed-forward width"},
           {"top_k_experts", 5, "5 of 4 experts"}}) {
    expect_message(with(c.key, c.value), c.message);
  }
  EXPECT_TRUE(with("use_bidirectional_attention", "vision"));  // of images only
  EXPECT_TRUE(with("use_double_wide_mlp", true));              // of layers that share keys and values only
}

Expected<ModelConfig> gguf_with(const std::string& key, const std::optional<gguf::Value>& value) {
  return config_of_gguf_with("gguf/gemma4-bf16.gguf", "gemma4." + key, value);
}

TEST(GemmaConfig, NonsenseInGgufIsRefused) {
  using gguf::Value;
  expect_message(gguf_with("embedding_length_per_layer_input", Value(uint32_t{256})),
                 "'gemma4.embedding_length_per_layer_input' is 256");
  expect_message(gguf_with("attention.shared_kv_layers", Value(uint32_t{1})), "'gemma4.attention.shared_kv_layers' is");
  expect_message(gguf_with("attention.head_count_kv", Value(std::vector<int32_t>{2, 1, 1})),
                 "'gemma4.attention.head_count_kv' is 2 and 1 in sliding layers");
  expect_message(gguf_with("attention.head_count_kv", Value(std::vector<int32_t>{2, 2})),
                 "'gemma4.attention.head_count_kv' has 2 values; one for each of 3 layers");
  expect_message(gguf_with("attention.sliding_window_pattern", Value(std::vector<bool>{true})),
                 "'gemma4.attention.sliding_window_pattern' has 1 values");
  expect_message(gguf_with("attention.sliding_window_pattern", std::nullopt), "sliding_window_pattern");
  expect_message(gguf_with("attention.value_length_swa", Value(uint32_t{8})), "different lengths are not supported");
  expect_message(gguf_with("feed_forward_length", Value(std::vector<int32_t>{32, 32, 64})),
                 "'gemma4.feed_forward_length' is 64 and 32");
  expect_message(gguf_with("rope.freq_base_swa", Value(0.0F)), "rotary base of sliding layers");
  expect_message(gguf_with("rope.dimension_count_swa", Value(uint32_t{18})), "18 rotary dimensions");
  expect_message(gguf_with("attention.sliding_window_pattern", Value(int32_t{-3})),
                 "'gemma4.attention.sliding_window_pattern' is -3");
  expect_message(gguf_with("rope.scaling.type", Value(std::string("yarn"))), "'gemma4.rope.scaling.type' is 'yarn'");
  expect_message(gguf_with("rope.scaling.factor", Value(8.0F)), "is 'linear' with a factor of 8");
  EXPECT_TRUE(gguf_with("rope.scaling.type", Value(std::string("none"))));
  EXPECT_TRUE(gguf_with("rope.scaling.factor", Value(1.0F)));
  expect_message(gguf_with("attention.sliding_window", Value(uint32_t{0})), "or convert the model again");
  // One number for all layers, and a period instead of a pattern, are fine.
  EXPECT_TRUE(gguf_with("feed_forward_length", Value(std::vector<int32_t>{32, 32, 32})));
  const auto period = gguf_with("attention.sliding_window_pattern", Value(uint32_t{3}));
  ASSERT_TRUE(period) << period.error().message;
  EXPECT_EQ(period->sliding.layers, (std::vector<bool>{true, true, false}));
}

TEST(GemmaConfig, PairsBeyondTheTurningOnesStandStill) {
  for (const char* path : {"models/gemma4", "gguf/gemma4-bf16.gguf"}) {
    const auto model = Model::load(golden(path), 64);
    ASSERT_TRUE(model) << model.error().message;
    int seen = 0;
    for (const Op& op : (*model)->program().ops) {
      const auto* rope = std::get_if<op::Rope>(&op.action);
      if (rope == nullptr || op.layer != 2) continue;
      ++seen;
      ASSERT_EQ(rope->table->frequencies.size(), 16U);
      for (size_t i = 0; i < 16; ++i) {
        const double expected = i < 4 ? std::pow(1e6, -static_cast<double>(2 * i) / 32.0) : 0.0;
        EXPECT_DOUBLE_EQ(rope->table->frequencies[i], expected) << path << " " << i;
      }
    }
    EXPECT_EQ(seen, 2);
  }
}

std::filesystem::path changed(const TestFolder& folder, const GgufChange& change) {
  return changed_gguf(folder, "gguf/gemma4-bf16.gguf", change);
}

TEST(GemmaConfig, PartsOfAModelAreNoOtherModel) {
  const TestFolder folder;
  EXPECT_TRUE(Model::load(changed(folder, {}), 64));
  const auto expect_refused = [&](const std::filesystem::path& path, std::string_view part) {
    const auto model = Model::load(path, 64);
    ASSERT_FALSE(model) << part;
    EXPECT_EQ(model.error().code, ErrorCode::corrupt);
    EXPECT_NE(model.error().message.find(part), std::string::npos) << model.error().message;
  };
  expect_refused(changed(folder, {.without = "rope_freqs.weight"}), "no tensor 'rope_freqs.weight'");
  expect_refused(changed(folder, {.key = "gemma4.expert_count", .value = gguf::Value(uint32_t{0})}),
                 "has a router ('blk.0.ffn_gate_inp.weight') but, by its configuration, no experts");
  for (const float divisor : {0.0F, -1.0F, std::nanf("")})
    expect_refused(changed(folder, {.tensor = "rope_freqs.weight", .first = divisor}), "value 0 of tensor 'rope_freqs");

  json config = golden_config("gemma4");
  config["text_config"]["enable_moe_block"] = false;
  for (const auto& entry : std::filesystem::directory_iterator(golden("models/gemma4"))) {
    if (entry.path().filename() != "config.json")
      std::filesystem::create_symlink(entry.path(), folder / entry.path().filename().string());
  }
  folder.write("config.json", config.dump());
  expect_refused(folder.path(), "has a router");
}

}  // namespace
}  // namespace cohort
