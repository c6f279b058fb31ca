// Conversion of the golden checkpoints, compared with GGUF files that another program made from the same weights.
#include "convert/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "base/test_disk_full.h"
#include "base/test_folder.h"
#include "formats/gguf/gguf.h"
#include "formats/safetensors/safetensors.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

fs::path golden(const std::string& name) {
  return fs::path(COHORT_SOURCE_DIR) / "tests/golden" / name;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

/// Compares by value, whatever integer type the two writers chose.
bool same_value(const gguf::Metadata& a, const gguf::Metadata& b, const std::string& key) {
  if (auto x = a.get_i64(key), y = b.get_i64(key); x && y) return *x == *y;
  if (auto x = a.get_f32_array(key), y = b.get_f32_array(key); x && y) return *x == *y;
  return a.find(key)->variant() == b.find(key)->variant();
}

void expect_same_tensors(const gguf::File& ours, const gguf::File& theirs) {
  EXPECT_EQ(ours.tensors().size(), theirs.tensors().size());
  for (const auto& tensor : theirs.tensors()) {
    const gguf::TensorInfo* mine = ours.find_tensor(tensor.name);
    ASSERT_NE(mine, nullptr) << tensor.name;
    EXPECT_EQ(mine->type, tensor.type) << tensor.name;
    EXPECT_EQ(mine->shape, tensor.shape) << tensor.name;
    ASSERT_EQ(mine->bytes, tensor.bytes) << tensor.name;
    EXPECT_EQ(std::memcmp(mine->data, tensor.data, tensor.bytes), 0) << tensor.name;
  }
}

struct Pair {
  const char* folder;
  const char* file;
  TensorType type;
};

class ConvertGolden : public ::testing::TestWithParam<Pair> {};

TEST_P(ConvertGolden, SameAsTheOtherConverter) {
  TestFolder folder;
  ConvertOptions options;
  options.type = GetParam().type;
  options.jobs = 3;
  auto report = convert(golden(std::string("models/") + GetParam().folder), folder / "out.gguf", options);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  if (std::string_view(GetParam().folder) == "qwen3_yarn") {
    ASSERT_EQ(report->notes.size(), 1U);
    EXPECT_TRUE(contains(report->notes[0], "--yarn-beta-fast 8 --yarn-beta-slow 0.5"));
  } else if (std::string_view(GetParam().folder) == "diffusion_gemma") {
    ASSERT_EQ(report->notes.size(), 1U);
    EXPECT_TRUE(contains(report->notes[0], "16 tensors for images and sound"));
  } else {
    EXPECT_TRUE(report->notes.empty()) << report->notes.front();
  }
  auto ours = gguf::File::open(folder / "out.gguf");
  ASSERT_TRUE(ours.has_value()) << ours.error().message;
  EXPECT_EQ(ours->file_bytes(), report->bytes);
  auto theirs = gguf::File::open(golden(std::string("gguf/") + GetParam().file));
  ASSERT_TRUE(theirs.has_value()) << theirs.error().message;
  expect_same_tensors(*ours, *theirs);
  // SentencePiece's scores have no meaning beyond their order; Gemma's pieces have merges instead.
  bool pieces = *theirs->metadata().get_string("tokenizer.ggml.model") != "gpt2";
  for (const auto& [key, value] : theirs->metadata().entries()) {
    if (key == "general.name" || (pieces && key == "tokenizer.ggml.scores")) continue;
    if (key == "tokenizer.ggml.mask_token_id") continue;  // no text model asks for it
    ASSERT_NE(ours->metadata().find(key), nullptr) << key;
    if (key == "tokenizer.ggml.pre" && *theirs->metadata().get_string(key) == "llama-bpe") {
      // llama-bpe also means that whole words skip the merges, which these tokenizer.json do not ask for; of the names
      // that llama.cpp knows, dbrx has the same patterns without that.
      EXPECT_EQ(*ours->metadata().get_string(key), "dbrx");
      continue;
    }
    EXPECT_TRUE(same_value(ours->metadata(), theirs->metadata(), key)) << key;
  }
  EXPECT_EQ(*ours->metadata().get_string("general.name"), GetParam().folder);
  EXPECT_EQ(*ours->metadata().get_u32("general.quantization_version"), 2U);
}

/// Whatever is asked for: they were made with it, and another type would only lose.
TEST(Convert, Mxfp4ExpertsStayWhatTheyAre) {
  const TestFolder folder;
  for (const auto type : {TensorType::bf16, TensorType::q8_0}) {
    ConvertOptions options;
    options.type = type;
    const auto done = convert(golden("models/gpt_oss_mxfp4"), folder / "out.gguf", options);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->types.at(TensorType::mxfp4), 9U);
    const auto ours = gguf::File::open(folder / "out.gguf"),
               floats = gguf::File::open(golden("gguf/gpt_oss-bf16.gguf"));
    ASSERT_TRUE(ours && floats);
    EXPECT_EQ(ours->find_tensor("blk.0.attn_q.weight")->type, type);
    for (const char* name : {"blk.0.ffn_gate_exps", "blk.1.ffn_up_exps", "blk.2.ffn_down_exps"}) {
      const auto* a = ours->find_tensor(std::string(name) + ".weight");
      const auto* b = floats->find_tensor(std::string(name) + ".weight");
      ASSERT_TRUE(a != nullptr && b != nullptr) << name;
      ASSERT_EQ(a->shape, b->shape);
      EXPECT_EQ(a->type, TensorType::mxfp4);
      std::vector<float> x(static_cast<size_t>(a->values())), y(x.size());
      decode_row(a->type, a->data, x.data(), a->values());
      decode_row(b->type, b->data, y.data(), b->values());
      EXPECT_EQ(x, y) << name;
      EXPECT_EQ(ours->find_tensor(std::string(name) + ".bias")->shape,
                floats->find_tensor(std::string(name) + ".bias")->shape);
    }
  }
}

TEST(Convert, GemmaWhosePairsAllRotateSaysSo) {
  TestFolder model, out;
  for (const auto& entry : fs::directory_iterator(golden("models/gemma4")))
    fs::copy(entry.path(), model / entry.path().filename().string());
  auto config = read_json_file(model / "config.json");
  ASSERT_TRUE(config);
  (*config)["text_config"]["rope_parameters"]["full_attention"]["partial_rotary_factor"] = 1.0;
  model.write("config.json", config->dump());
  const auto done = convert(model.path(), out / "all.gguf", {});
  ASSERT_TRUE(done) << done.error().message;
  const auto file = gguf::File::open(out / "all.gguf");
  ASSERT_TRUE(file);
  const gguf::TensorInfo* divisors = file->find_tensor("rope_freqs.weight");
  ASSERT_NE(divisors, nullptr);
  ASSERT_EQ(divisors->bytes, 16 * sizeof(float));
  for (size_t i = 0; i < 16; ++i) {
    float divisor = 0;
    std::memcpy(&divisor, divisors->data + i * sizeof(float), sizeof(float));
    EXPECT_EQ(divisor, 1.0F);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ConvertGolden,
                         ::testing::Values(Pair{"qwen3_moe", "qwen3_moe-bf16.gguf", TensorType::bf16},
                                           Pair{"qwen3_moe_fused", "qwen3_moe-bf16.gguf", TensorType::bf16},
                                           Pair{"qwen3", "qwen3-f32.gguf", TensorType::f32},
                                           Pair{"qwen3_yarn", "qwen3_yarn-f32.gguf", TensorType::f32},
                                           Pair{"qwen2", "qwen2-f32.gguf", TensorType::f32},
                                           Pair{"llama", "llama-f32.gguf", TensorType::f32},
                                           Pair{"llama_rope3", "llama_rope3-f32.gguf", TensorType::f32},
                                           Pair{"llama_tied", "llama_tied-f32.gguf", TensorType::f32},
                                           Pair{"mixtral", "mixtral-bf16.gguf", TensorType::bf16},
                                           Pair{"mixtral_fused", "mixtral-bf16.gguf", TensorType::bf16},
                                           Pair{"gpt_oss", "gpt_oss-bf16.gguf", TensorType::bf16},
                                           Pair{"gemma4", "gemma4-bf16.gguf", TensorType::bf16},
                                           Pair{"gemma4_deep", "gemma4_deep-bf16.gguf", TensorType::bf16},
                                           Pair{"diffusion_gemma", "diffusion_gemma-bf16.gguf", TensorType::bf16}),
                         [](const auto& info) { return std::string(info.param.folder); });

/// Scores only have to put merges into the same order.
TEST(Convert, ScoresOfASentencePieceVocabularyKeepTheOrderOfTheMerges) {
  TestFolder folder;
  ASSERT_TRUE(convert(golden("models/llama_tied"), folder / "out.gguf", {}).has_value());
  auto ours = gguf::File::open(folder / "out.gguf");
  auto theirs = gguf::File::open(golden("gguf/llama_tied-f32.gguf"));
  auto a = *ours->metadata().get_f32_array("tokenizer.ggml.scores");
  auto b = *theirs->metadata().get_f32_array("tokenizer.ggml.scores");
  auto kinds = *ours->metadata().get_int_array("tokenizer.ggml.token_type");
  const auto& tokens = **ours->metadata().get_string_array("tokenizer.ggml.tokens");
  ASSERT_EQ(a.size(), b.size());
  int compared = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a.size(); ++j) {
      // Single characters are never the result of a merge.
      if (kinds[i] != 1 || kinds[j] != 1 || tokens[i].size() < 4 || tokens[j].size() < 4) continue;
      EXPECT_EQ(a[i] < a[j], b[i] < b[j]) << tokens[i] << " " << tokens[j];
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
}

TEST(Convert, TheDefaultTypeIsTheCheckpoints) {
  TestFolder folder;
  for (auto [name, type] :
       {std::pair{"qwen3_moe", TensorType::bf16}, {"qwen2", TensorType::f16}, {"llama_tied", TensorType::f32}}) {
    ASSERT_TRUE(convert(golden(std::string("models/") + name), folder / "out.gguf", {}).has_value());
    EXPECT_EQ(gguf::File::open(folder / "out.gguf")->find_tensor("token_embd.weight")->type, type) << name;
  }
}

TEST(Convert, ThreadsDoNotChangeTheFile) {
  TestFolder folder;
  for (TensorType type : {TensorType::q8_0, TensorType::f16}) {
    ConvertOptions options;
    options.type = type;
    ASSERT_TRUE(convert(golden("models/mixtral"), folder / "one.gguf", options).has_value());
    options.jobs = 5;
    ASSERT_TRUE(convert(golden("models/mixtral"), folder / "five.gguf", options).has_value());
    EXPECT_EQ(*read_text_file(folder / "one.gguf"), *read_text_file(folder / "five.gguf"));
  }
}

TEST(Convert, EveryTypeWithItsFallbacks) {
  // mixtral: hidden 64, experts of 24, so that q8_0 cannot hold ffn_down_exps and q4_k nothing.
  for (TensorType type : convert_types()) {
    TestFolder folder;
    ConvertOptions options;
    options.type = type;
    auto report = convert(golden("models/mixtral"), folder / "out.gguf", options);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    auto file = gguf::File::open(folder / "out.gguf");
    ASSERT_TRUE(file.has_value()) << file.error().message;
    auto type_of = [&](const char* name) { return file->find_tensor(name)->type; };
    EXPECT_EQ(type_of("blk.0.ffn_gate_inp.weight"), TensorType::f32);
    EXPECT_EQ(type_of("blk.1.attn_norm.weight"), TensorType::f32);
    TensorType body = type == TensorType::q4_k ? TensorType::q5_0 : type;
    EXPECT_EQ(type_of("blk.0.attn_q.weight"), body);
    EXPECT_EQ(type_of("blk.1.ffn_up_exps.weight"), body);
    bool four_bits = type == TensorType::q4_k || type == TensorType::q4_0;
    EXPECT_EQ(type_of("output.weight"), four_bits ? TensorType::q8_0 : type);
    bool plain = type == TensorType::f32 || type == TensorType::f16 || type == TensorType::bf16;
    EXPECT_EQ(type_of("blk.0.ffn_down_exps.weight"), plain ? type : TensorType::f16);
    EXPECT_EQ(report->notes.empty(), plain);
    if (type == TensorType::q8_0) {
      EXPECT_EQ(report->notes[0],
                "blk.0.attn_output.weight is f16 instead of q8_0: its rows of 48 values are no multiple of 32");
    }
  }
}

// ---- refusals ----

/// A copy of a golden checkpoint whose files can be spoilt.
class ConvertBad : public ::testing::Test {
 protected:
  void SetUp() override { use("qwen3_moe"); }
  void use(const std::string& name) {
    fs::remove_all(folder / "model");
    fs::copy(golden("models/" + name), folder / "model");
    fs::remove(folder / "model" / "golden_logits.safetensors");
  }
  nlohmann::json read(const char* name) { return nlohmann::json::parse(*read_text_file(folder / "model" / name)); }
  void write(const std::string& name, const nlohmann::json& value) { folder.write("model/" + name, value.dump()); }
  template <class Edit>
  void edit(const char* name, Edit change) {
    auto value = read(name);
    change(value);
    write(name, value);
  }
  /// The message; and nothing may be left in the output folder.
  std::string error(const ConvertOptions& options = {}) {
    fs::create_directories(folder / "out");
    auto report = convert(folder / "model", folder / "out" / "out.gguf", options);
    EXPECT_EQ(fs::is_empty(folder / "out"), !report.has_value());
    code = report ? ErrorCode::internal : report.error().code;
    fs::remove_all(folder / "out");
    return report ? "" : report.error().message;
  }
  /// Rewrites model.safetensors with changed tensors.
  template <class Edit>
  void edit_tensors(Edit change) {
    auto source = safetensors::File::open(golden("models/qwen3_moe/model.safetensors"));
    std::vector<safetensors::TensorToWrite> tensors;
    for (const auto& tensor : source->tensors()) {
      tensors.push_back({tensor.name, tensor.dtype, tensor.shape, {tensor.data, tensor.bytes}});
    }
    change(tensors);
    ASSERT_TRUE(safetensors::write_file(folder / "model" / "model.safetensors", tensors).has_value());
  }
  TestFolder folder;
  ErrorCode code = ErrorCode::internal;
};

TEST_F(ConvertBad, NothingIsWrong) {
  EXPECT_EQ(error(), "");
}

TEST_F(ConvertBad, MissingFiles) {
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"}) {
    use("qwen3_moe");
    fs::remove(folder / "model" / name);
    EXPECT_TRUE(contains(error(), name)) << name;
    EXPECT_EQ(code, ErrorCode::not_found) << name;
  }
}

TEST_F(ConvertBad, Config) {
  edit("config.json", [](auto& c) { c["model_type"] = "gpt9"; });
  EXPECT_TRUE(contains(error(), "'gpt9' is not supported; supported are qwen3_moe"));
  use("qwen3_moe");
  edit("config.json", [](auto& c) { c["quantization_config"] = {{"quant_method", "gptq"}}; });
  EXPECT_TRUE(contains(error(), "quantised already (\"gptq\")"));
  use("qwen3_moe_odd");
  EXPECT_TRUE(contains(error(), "norm_topk_prob is false"));
  use("llama");
  edit("config.json", [](auto& c) { c["num_hidden_layers"] = 3; });
  EXPECT_TRUE(contains(error(), "model.layers.2"));
}

TEST_F(ConvertBad, Tensors) {
  edit_tensors([](auto& tensors) {
    std::erase_if(tensors, [](const auto& t) { return t.name == "model.layers.1.mlp.experts.3.up_proj.weight"; });
  });
  EXPECT_TRUE(contains(error(), "'model.layers.1.mlp.experts.3.up_proj.weight'"));
  edit_tensors([](auto& tensors) {
    for (auto& t : tensors) {
      if (t.name == "model.layers.0.self_attn.o_proj.weight") std::swap(t.shape[0], t.shape[1]);
    }
  });
  EXPECT_TRUE(
      contains(error(), "'model.layers.0.self_attn.o_proj.weight' has shape [96, 64]; config.json asks for [64, 96]"))
      << error();
  edit_tensors([](auto& tensors) {
    for (auto& t : tensors) {
      if (t.name == "model.norm.weight") t.dtype = safetensors::DType::i16;
    }
  });
  EXPECT_TRUE(contains(error(), "'model.norm.weight' has type I16"));
  std::vector<std::byte> extra(8);
  edit_tensors([&](auto& tensors) { tensors.push_back({"model.extra.weight", safetensors::DType::bf16, {4}, extra}); });
  EXPECT_TRUE(contains(error(), "1 tensors of the folder have no place in this architecture: 'model.extra.weight'"));
  ConvertOptions options;
  options.ignore_unused = true;
  EXPECT_EQ(error(options), "");
}

TEST_F(ConvertBad, NotANumber) {
  std::vector<std::byte> spoilt;
  edit_tensors([&](auto& tensors) {
    for (auto& t : tensors) {
      if (t.name != "model.layers.1.self_attn.v_proj.weight") continue;
      spoilt.assign(t.data.begin(), t.data.end());
      spoilt[201] = std::byte{0x7f};  // bf16 0x7fc0: a NaN in row 1
      spoilt[200] = std::byte{0xc0};
      t.data = spoilt;
    }
  });
  ConvertOptions options;
  options.type = TensorType::q8_0;
  EXPECT_TRUE(contains(error(options), "tensor 'blk.1.attn_v.weight', row 1:")) << error(options);
}

TEST_F(ConvertBad, Head) {
  use("llama");
  edit("config.json", [](auto& c) { c["tie_word_embeddings"] = true; });  // an untied head is left out when it is tied
  EXPECT_EQ(error(), "");
  use("llama_tied");
  edit("config.json", [](auto& c) { c["tie_word_embeddings"] = false; });
  EXPECT_TRUE(contains(error(), "no tensor 'lm_head.weight'"));
}

TEST_F(ConvertBad, Tokenizer) {
  edit("tokenizer.json", [](auto& t) { t["model"]["type"] = "WordPiece"; });
  EXPECT_TRUE(contains(error(), "model type 'WordPiece'"));
  use("qwen3_moe");
  edit("tokenizer.json", [](auto& t) { t["model"]["vocab"]["extra"] = 288; });
  EXPECT_TRUE(contains(error(), "token 'extra' has id 288, but the embedding has 288 rows"));
  use("qwen3_moe");
  edit("tokenizer.json", [](auto& t) { t["model"]["vocab"]["extra"] = 5; });
  EXPECT_TRUE(contains(error(), "id 5 belongs to"));
  use("qwen3_moe");
  edit("tokenizer.json", [](auto& t) { t["model"]["vocab"]["extra"] = "5"; });
  EXPECT_TRUE(contains(error(), "has type string"));
  use("qwen3_moe");
  edit("tokenizer.json", [](auto& t) { t["model"]["merges"][0] = 3; });
  EXPECT_TRUE(contains(error(), "merge 0 is neither"));
  use("qwen3_moe");
  edit("tokenizer.json", [](auto& t) { t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "[a-z]+"; });
  EXPECT_TRUE(contains(error(), "no GGUF name is known for the pre-tokenizer [a-z]+")) << error();
  ConvertOptions options;
  options.pre = "qwen2";
  EXPECT_EQ(error(options), "");
  options.pre = "nonsense";
  EXPECT_TRUE(contains(error(options), "--pre nonsense: known are"));
  use("qwen3_moe");
  edit("config.json", [](auto& c) { c["eos_token_id"] = 1000; });
  EXPECT_TRUE(contains(error(), "eos_token_id is 1000; the vocabulary has 288 tokens")) << error();
}

TEST_F(ConvertBad, SetTexts) {
  ConvertOptions options;
  options.set = {{"general.license", "cc0-1.0"}};
  ASSERT_TRUE(convert(folder / "model", folder / "out.gguf", options).has_value());
  EXPECT_EQ(*gguf::File::open(folder / "out.gguf")->metadata().get_string("general.license"), "cc0-1.0");
  for (const char* key : {"general.name", "qwen3moe.block_count", "license", ""}) {
    options.set = {{key, "x"}};
    EXPECT_TRUE(contains(error(options), "only new keys that begin with 'general.'")) << key;
  }
}

TEST_F(ConvertBad, TheModelCardsKeysYieldToSet) {
  folder.write("model/README.md", "---\nlicense: apache-2.0\nbase_model: org/base\n---\n# Title\n");
  const auto license = [&](const ConvertOptions& options) {
    EXPECT_TRUE(convert(folder / "model", folder / "out.gguf", options).has_value());
    auto file = gguf::File::open(folder / "out.gguf");
    EXPECT_EQ(*file->metadata().get_string("general.base_model.0.organization"), "org");
    return std::string(*file->metadata().get_string("general.license"));
  };
  EXPECT_EQ(license({}), "apache-2.0");
  ConvertOptions options;
  options.set = {{"general.license", "cc0-1.0"}};
  EXPECT_EQ(license(options), "cc0-1.0");
}

TEST_F(ConvertBad, OutputPlaces) {
  auto report = convert(folder / "model", folder.path(), {});
  EXPECT_TRUE(contains(report.error().message, "is a folder; name the file to write"));
  report = convert(folder / "model", folder / "none/out.gguf", {});
  EXPECT_EQ(report.error().code, ErrorCode::not_found);
  EXPECT_TRUE(contains(report.error().message, "/none' does not exist"));
}

TEST_F(ConvertBad, FullDiskLeavesNothing) {
  for (rlim_t limit : {0, 5000, 200000}) {
    FileSizeLimit full(limit);
    EXPECT_TRUE(contains(error(), "out.gguf")) << error();
    EXPECT_EQ(code, ErrorCode::io);
  }
}

TEST_F(ConvertBad, CancelledLeavesNothing) {
  int pieces = 0;
  ConvertOptions options;
  options.cancelled = [&] { return ++pieces == 10; };
  EXPECT_TRUE(contains(error(options), "interrupted after"));
  EXPECT_EQ(code, ErrorCode::cancelled);
}

// ---- the tokenizer's keys ----

TEST_F(ConvertBad, SpecialTokensChatTemplateAndSampling) {
  edit("tokenizer_config.json", [](auto& c) {
    c["bos_token"] = {{"content", "the"}};
    c["chat_template"] = "{{ messages }}";
    c["add_bos_token"] = true;
  });
  edit("tokenizer.json", [](auto& t) {
    t["added_tokens"].push_back(
        {{"id", 12}, {"content", t["model"]["vocab"].items().begin().key()}, {"special", false}});
    auto& vocab = t["model"]["vocab"];
    auto text = vocab.items().begin().key();
    t["added_tokens"].back()["id"] = vocab[text];
  });
  std::string bos = read("tokenizer.json")["model"]["vocab"].items().begin().key();
  edit("tokenizer_config.json", [&](auto& c) { c["bos_token"]["content"] = bos; });
  write(
      "generation_config.json",
      {{"do_sample", true}, {"top_k", 20}, {"top_p", 0.8}, {"temperature", 0.7}, {"eos_token_id", {287, 286, 285, 7}}});
  auto report = convert(folder / "model", folder / "out.gguf", {});
  ASSERT_TRUE(report.has_value()) << report.error().message;
  ASSERT_EQ(report->notes.size(), 1U);
  EXPECT_TRUE(contains(report->notes[0], "end token 7"));
  auto file = gguf::File::open(folder / "out.gguf");
  const gguf::Metadata& m = file->metadata();
  uint32_t id = *m.get_u32("tokenizer.ggml.bos_token_id");
  EXPECT_EQ((**m.get_string_array("tokenizer.ggml.tokens"))[id], bos);
  EXPECT_EQ((*m.get_int_array("tokenizer.ggml.token_type"))[id], 4);  // user defined
  EXPECT_EQ(*m.get_bool("tokenizer.ggml.add_bos_token"), true);
  EXPECT_EQ(*m.get_string("tokenizer.chat_template"), "{{ messages }}");
  EXPECT_EQ(*m.get_u32("tokenizer.ggml.eos_token_id"), 287U);
  EXPECT_EQ(*m.get_u32("tokenizer.ggml.eot_token_id"), 286U);
  EXPECT_EQ(*m.get_u32("tokenizer.ggml.eom_token_id"), 285U);
  EXPECT_EQ(*m.get_i32("general.sampling.top_k"), 20);
  EXPECT_EQ(*m.get_f32("general.sampling.top_p"), 0.8F);
  EXPECT_EQ(*m.get_f32("general.sampling.temp"), 0.7F);
}

}  // namespace
}  // namespace cohort
