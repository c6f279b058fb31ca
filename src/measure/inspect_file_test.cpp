#include "measure/inspect_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/test_folder.h"
#include "formats/gguf/gguf.h"
#include "formats/safetensors/safetensors.h"
#include "formats/test_bytes.h"

namespace cohort {
namespace {

std::filesystem::path golden(std::string_view name) {
  return std::filesystem::path(COHORT_SOURCE_DIR) / "tests/golden" / name;
}

TEST(InspectFile, CountsAGgufFile) {
  auto summary = summarise(golden("gguf/qwen3_moe-bf16.gguf"));
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_EQ(summary->format, "GGUF 3");
  EXPECT_EQ(summary->architecture, "qwen3moe");
  EXPECT_EQ(summary->parameters, 111648U);  // as tests/golden/models/models.json says
  ASSERT_EQ(summary->types.size(), 2U);
  EXPECT_EQ(summary->types[0].type, "bf16");
  uint64_t bytes = 0;
  for (const auto& type : summary->types) bytes += type.bytes;
  EXPECT_EQ(bytes, summary->tensor_bytes);
  EXPECT_EQ(summary->types[0].bytes, 2 * summary->types[0].parameters);
  EXPECT_EQ(summary->types[1].bytes, 4 * summary->types[1].parameters);
}

TEST(InspectFile, CountsAFolder) {
  auto summary = summarise(golden("models/llama_tied"));
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_EQ(summary->format, "safetensors");
  EXPECT_EQ(summary->files, 2U);
  EXPECT_EQ(summary->architecture, "llama");
  auto gguf = summarise(golden("gguf/llama_tied-f32.gguf"));
  EXPECT_EQ(summary->parameters, gguf->parameters);
  EXPECT_EQ(summary->tensor_bytes, gguf->tensor_bytes);
}

TEST(InspectFile, CountsPackedValuesAndNotWhatStandsBesideThem) {
  for (const char* name : {"mlx", "awq", "gptq2_asym_gptq", "gptq3_sym_gptq", "gptq8_sym_gptq_v2_order",
                           "compressed4_asym", "compressed4_asym_order", "compressed8_sym", "fp8"}) {
    const auto folder = golden("checkpoints") / name;
    auto summary = summarise(folder);
    ASSERT_TRUE(summary.has_value()) << name << ": " << summary.error().message;
    auto twin = safetensors::File::open(folder / "expected.safetensors");
    ASSERT_TRUE(twin.has_value()) << twin.error().message;
    uint64_t expected = 0;
    for (const auto& tensor : twin->tensors()) expected += static_cast<uint64_t>(tensor.values());
    EXPECT_EQ(summary->parameters, expected) << name;
  }
}

TEST(InspectFile, Json) {
  auto summary = summarise(seed_path("gguf/every_type.gguf"));
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  auto json = summary_json(*summary, 2);
  EXPECT_EQ(json["metadata"]["a.u64"]["value"], 18446744073709551615U);
  EXPECT_EQ(json["metadata"]["a.f64"]["value"], 0.1);
  EXPECT_EQ(json["metadata"]["b.string"]["count"], 4);
  EXPECT_EQ(json["metadata"]["b.string"]["type"], "array of string");
  EXPECT_EQ(json["metadata"]["b.string"]["value"].dump(), R"(["","a"])");
  EXPECT_EQ(json["metadata"]["b.nested"]["value"].dump(), R"([[1,2],["x"]])");
  EXPECT_EQ(json["tensors"].size(), 7U);
  EXPECT_EQ(json["tensors"][5]["shape"].dump(), "[256,2,2]");
  auto full = summary_json(*summary, SIZE_MAX);
  EXPECT_EQ(full["metadata"]["b.nested"]["value"].dump(), R"([[1,2],["x"],[[7]]])");
  EXPECT_EQ(value_text(gguf::Value(std::string("a\nb"))), "a\nb");
  EXPECT_EQ(value_text(gguf::Value(std::vector<int32_t>{1, 2})), "[1,2]");
  EXPECT_EQ(value_text(gguf::Value(1e-6F)), "1e-06");
}

TEST(InspectFile, TextEscapesControlCharacters) {
  TestFolder folder;
  auto writer = gguf::Writer::create(folder / "x.gguf");
  ASSERT_TRUE(writer.has_value());
  std::string hostile =
      "a\x1b[2Jb\nc\x9b"
      "2Jd\xff";
  ASSERT_TRUE(writer->metadata().add("general.architecture", gguf::Value(hostile)).has_value());
  ASSERT_TRUE(writer->metadata().add(hostile, gguf::Value(gguf::StringArray::from(std::vector{hostile}))).has_value());
  ASSERT_TRUE(writer->metadata().add("long", gguf::Value(std::string(1000, 'x'))).has_value());
  ASSERT_TRUE(writer->add_tensor(hostile, TensorType::f32, {1}).has_value());
  ASSERT_TRUE(writer->begin_data().has_value());
  ASSERT_TRUE(writer->write(as_bytes(std::string(4, '\0'))).has_value());
  ASSERT_TRUE(writer->commit().has_value());
  auto summary = summarise(folder / "x.gguf");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  std::string text = summary_text(*summary);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\x9b'), std::string::npos);
  EXPECT_TRUE(contains(text, "a\\x1b[2Jb\\nc")) << text;
  EXPECT_TRUE(contains(text, std::string(60, 'x') + "...")) << text;
  EXPECT_FALSE(contains(text, std::string(70, 'x')));
}

TEST(InspectFile, Errors) {
  TestFolder folder;
  EXPECT_EQ(summarise(folder / "none").error().code, ErrorCode::not_found);
  EXPECT_TRUE(contains(summarise(folder.path()).error().message, "has no config.json"));
  EXPECT_EQ(summarise(folder.write("x.gguf", "GGML")).error().code, ErrorCode::corrupt);
}

}  // namespace
}  // namespace cohort
