#include "measure/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/file.h"
#include "base/test_folder.h"
#include "formats/gguf/gguf.h"
#include "measure/synth_blocks.h"
#include "models/model.h"

namespace cohort {
namespace {

TEST(synth, blocks_have_the_wanted_spread_and_no_mean) {
  constexpr int64_t kValues = 256 * 400;
  for (TensorType type : synthesised_types()) {
    SCOPED_TRACE(type_info(type).name);
    const int64_t blocks = kValues / type_info(type).block_values;
    std::vector<std::byte> whole(row_bytes(type, kValues)), parts(whole.size());
    fill_random_blocks(type, 42, 0, blocks, 0.02F, whole.data());
    const auto half = static_cast<size_t>(blocks / 3) * type_info(type).block_bytes;
    fill_random_blocks(type, 42, blocks / 3, blocks - blocks / 3, 0.02F, parts.data() + half);
    fill_random_blocks(type, 42, 0, blocks / 3, 0.02F, parts.data());
    EXPECT_EQ(whole, parts);
    std::vector<float> values(kValues);
    decode_row(type, whole.data(), values.data(), kValues);
    double sum = 0, squares = 0;
    for (float value : values) sum += value, squares += double{value} * value;
    EXPECT_NEAR(std::sqrt(squares / kValues), 0.02, 0.001);
    EXPECT_NEAR(sum / kValues, 0, 0.0006);
    fill_random_blocks(type, 43, 0, blocks, 0.02F, parts.data());
    EXPECT_NE(whole, parts);
  }
}

std::map<std::string, TensorType> types_of(const std::string& config, const std::string& type) {
  const auto model = synth_model(config, 0);
  EXPECT_TRUE(model);
  const auto types = synth_types(*model, type);
  EXPECT_TRUE(types);
  std::map<std::string, TensorType> by_name;
  for (size_t i = 0; i < types->size(); ++i) by_name[model->tensors[i].name] = (*types)[i];
  return by_name;
}

TEST(synth, types_are_distributed_as_by_llama_cpp) {
  auto types = types_of("qwen3-30b-a3b", "q4_k_m");
  EXPECT_EQ(types["token_embd.weight"], TensorType::q4_k);
  EXPECT_EQ(types["output.weight"], TensorType::q6_k);
  EXPECT_EQ(types["blk.0.ffn_gate_inp.weight"], TensorType::f32);
  EXPECT_EQ(types["blk.0.attn_norm.weight"], TensorType::f32);
  int more = 0;
  for (int layer = 0; layer < 48; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer);
    EXPECT_EQ(types[prefix + ".attn_v.weight"], types[prefix + ".ffn_down_exps.weight"]);
    EXPECT_EQ(types[prefix + ".ffn_up_exps.weight"], TensorType::q4_k);
    more += types[prefix + ".attn_v.weight"] == TensorType::q6_k ? 1 : 0;
  }
  EXPECT_EQ(more, 24);                           // 6 first, 6 last, 12 of 36 between
  types = types_of("qwen3-moe-mini", "q4_k_m");  // experts 384 wide: down falls back
  EXPECT_EQ(types["blk.0.ffn_down_exps.weight"], TensorType::q8_0);
  EXPECT_EQ(types["blk.1.ffn_down_exps.weight"], TensorType::q5_0);
  types = types_of("qwen3-0.6b", "q4_0");
  EXPECT_EQ(types["token_embd.weight"], TensorType::q6_k);
  EXPECT_EQ(types["blk.3.ffn_down.weight"], TensorType::q4_0);
  types = types_of("gpt-oss-20b", "mxfp4_moe");
  EXPECT_EQ(types["blk.5.ffn_gate_exps.weight"], TensorType::mxfp4);
  EXPECT_EQ(types["blk.5.ffn_gate_exps.bias"], TensorType::f32);
  EXPECT_EQ(types["blk.5.attn_q.weight"], TensorType::q8_0);
  EXPECT_EQ(types["output.weight"], TensorType::q8_0);
  EXPECT_EQ(types_of("gemma4-26b-a4b", "bf16")["blk.5.ffn_gate_up_exps.weight"], TensorType::bf16);
}

TEST(synth, sizes_are_those_of_the_real_models) {
  const auto total = [](const std::string& config) {
    double values = 0;
    const auto model = synth_model(config, 0);
    for (const SynthTensor& tensor : model->tensors) {
      double product = 1;
      for (int64_t dimension : tensor.shape) product *= static_cast<double>(dimension);
      values += product;
    }
    return values * 1e-9;
  };
  EXPECT_NEAR(total("qwen3-30b-a3b"), 30.53, 0.01);
  EXPECT_NEAR(total("qwen3-0.6b"), 0.596, 0.001);
  EXPECT_NEAR(total("llama-3.1-8b"), 8.03, 0.01);
  EXPECT_NEAR(total("gemma4-26b-a4b"), 25.2, 0.5);
  EXPECT_NEAR(total("gpt-oss-20b"), 20.91, 0.01);
  EXPECT_NEAR(total("gpt-oss-120b"), 116.83, 0.01);
}

TEST(synth, writes_the_same_file_whatever_the_threads) {
  const TestFolder folder;
  SynthOptions options{"qwen3-moe-mini", "q4_k_m", folder.path() / "a.gguf", 1, 7, 1, {}};
  const auto size = synthesise(options);
  ASSERT_TRUE(size) << size.error().message;
  options.output = folder.path() / "b.gguf";
  options.threads = 3;
  uint64_t last = 0;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GT(done, last);
    EXPECT_LE(done, total);
    last = done;
  };
  ASSERT_TRUE(synthesise(options));
  EXPECT_GT(last, *size / 2);
  const auto a = MappedFile::open(folder.path() / "a.gguf"), b = MappedFile::open(folder.path() / "b.gguf");
  ASSERT_TRUE(a && b);
  ASSERT_EQ(a->bytes().size(), *size);
  EXPECT_TRUE(std::ranges::equal(a->bytes(), b->bytes()));
  const auto file = gguf::File::open(folder.path() / "a.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const auto config = config_from_gguf(file->metadata());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->layers, 1);
  EXPECT_EQ(config->experts, 64);
  EXPECT_EQ(config->vocabulary, 32000);
  const auto tokens = file->metadata().get_string_array("tokenizer.ggml.tokens");
  ASSERT_TRUE(tokens);
  EXPECT_EQ((**tokens)[0], "\u0100");
  EXPECT_EQ((**tokens)[65], "A");
  EXPECT_EQ((**tokens)[32], "\u0120");
  EXPECT_EQ((**tokens)[255], "\u00ff");
  EXPECT_EQ((**tokens)[173], "\u0143");
}

TEST(synth, gpt_oss_can_be_loaded) {
  const TestFolder folder;
  for (const char* type : {"mxfp4_moe", "bf16"}) {
    const std::string config = COHORT_SOURCE_DIR "/tests/golden/models/gpt_oss/config.json";
    const auto size = synthesise({config, type, folder.path() / "x.gguf", 4, 0, 1, {}});
    ASSERT_TRUE(size) << size.error().message;
    const auto model = Model::load(folder.path() / "x.gguf", 64);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ((*model)->config().sliding.layers, (std::vector<bool>{true, false, true, true}));
    EXPECT_EQ((*model)->config().sliding.window, 8);
    EXPECT_EQ((*model)->config().rope_scaling.factor, 8);
    EXPECT_NE(to_text((*model)->program()).find("clamped swiglu, biases"), std::string::npos);
  }
}

TEST(synth, a_canvas_is_as_long_as_the_config_says) {
  const TestFolder folder;
  const auto length = [&](const std::string& config) {
    const auto size = synthesise({config, "bf16", folder.path() / "x.gguf", 1, 0, 1, {}});
    EXPECT_TRUE(size) << size.error().message;
    const auto file = gguf::File::open(folder.path() / "x.gguf");
    return size && file ? file->metadata().get_i64("diffusion.canvas_length").value_or(-1) : -2;
  };
  EXPECT_EQ(length(COHORT_SOURCE_DIR "/tests/golden/models/diffusion_gemma/config.json"), 12);
  EXPECT_EQ(length("diffusiongemma-mini"), 256);
}

TEST(synth, refuses_what_it_does_not_know) {
  const TestFolder folder;
  const auto attempt = [&](const char* config, const char* type, int32_t layers, int threads) {
    const auto result = synthesise({config, type, folder.path() / "x.gguf", layers, 0, threads, {}});
    EXPECT_FALSE(result);
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "x.gguf"));
    return result ? std::string() : result.error().message;
  };
  EXPECT_NE(attempt("gpt-9", "q4_0", 0, 1).find("qwen3-30b-a3b"), std::string::npos);
  EXPECT_NE(attempt("qwen3-moe-mini", "q9", 0, 1).find("q4_k_m"), std::string::npos);
  EXPECT_NE(attempt("qwen3-moe-mini", "q4_0", -1, 1).find("-1"), std::string::npos);
  EXPECT_NE(attempt("qwen3-moe-mini", "q4_0", 1, 0).find("0 threads"), std::string::npos);
  attempt("/nonexistent/config.json", "q4_0", 0, 1);
}

}  // namespace
}  // namespace cohort
