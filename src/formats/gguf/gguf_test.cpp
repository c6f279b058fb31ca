// GGUF files that are right: every metadata type, split files, writing and reading back.
#include "formats/gguf/gguf.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <limits>

#include "base/test_disk_full.h"
#include "base/test_folder.h"
#include "formats/test_bytes.h"

namespace cohort::gguf {
namespace {

File open_seed(std::string_view name) {
  auto file = File::open(seed_path(name));
  if (!file) throw std::runtime_error(file.error().message);
  return std::move(*file);
}

TEST(GgufRead, EveryMetadataType) {
  File file = open_seed("gguf/every_type.gguf");
  const Metadata& m = file.metadata();
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(m.size(), 27u);
  EXPECT_EQ(*m.get_u32("a.u8"), 200u);
  EXPECT_EQ(*m.get_i32("a.i8"), -100);
  EXPECT_EQ(*m.get_u64("a.u16"), 60000u);
  EXPECT_EQ(*m.get_i64("a.i16"), -30000);
  EXPECT_EQ(*m.get_u32("a.u32"), 4000000000u);
  EXPECT_EQ(*m.get_i32("a.i32"), -2000000000);
  EXPECT_EQ(*m.get_f32("a.f32"), 0.5f);
  EXPECT_EQ(*m.get_f64("a.f64"), 0.1);
  EXPECT_EQ(*m.get_bool("a.bool"), true);
  EXPECT_EQ(*m.get_string("a.string"), "na\u00efve \U0001f600");
  EXPECT_EQ(*m.get_u64("a.u64"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(*m.get_i64("a.i64"), std::numeric_limits<int64_t>::min());
  using Ints = std::vector<int64_t>;
  EXPECT_EQ(*m.get_int_array("b.u8"), (Ints{1, 2, 255}));
  EXPECT_EQ(*m.get_int_array("b.i8"), (Ints{-1, 127}));
  EXPECT_EQ(*m.get_int_array("b.u16"), (Ints{65535}));
  EXPECT_EQ(*m.get_int_array("b.i16"), (Ints{-32768}));
  EXPECT_EQ(*m.get_int_array("b.u32"), (Ints{1, 4294967295}));
  EXPECT_EQ(*m.get_int_array("b.i32"), (Ints{4, -5, 6}));
  EXPECT_EQ(*m.get_int_array("b.i64"), (Ints{-1}));
  EXPECT_EQ(*m.get_f32_array("b.f32"), (std::vector<float>{0.25f, -1.0f}));
  EXPECT_EQ(m.get_f32_array("b.f64")->size(), 1u);
  EXPECT_EQ(*m.get_bool_array("b.bool"), (std::vector<bool>{true, false, true}));
  const StringArray& strings = **m.get_string_array("b.string");
  ASSERT_EQ(strings.size(), 4u);
  EXPECT_EQ(strings[0], "");
  EXPECT_EQ(strings[2], "bc");
  EXPECT_EQ(strings[3], std::string_view("\xff\0", 2));
  EXPECT_EQ(std::distance(strings.begin(), strings.end()), 4);
  EXPECT_TRUE((*m.get_string_array("b.empty"))->empty());
  const Value* nested = m.find("b.nested");
  ASSERT_NE(nested, nullptr);
  EXPECT_EQ(nested->describe(), "array of array (3)");
  const auto& items = std::get<NestedArray>(nested->variant()).items;
  EXPECT_EQ(items[0], Value(std::vector<int32_t>{1, 2}));
  EXPECT_EQ(items[2].describe(), "array of array (1)");
}

TEST(GgufRead, LookupsNameTheKey) {
  File file = open_seed("gguf/every_type.gguf");
  const Metadata& m = file.metadata();
  EXPECT_EQ(m.get_u32("nope").error().message, "metadata key 'nope' is missing");
  EXPECT_EQ(m.get_u32("nope").error().code, ErrorCode::not_found);
  EXPECT_EQ(*m.get_u32("nope", 7), 7u);
  EXPECT_EQ(m.get_u32("a.string", 7).error().message, "metadata key 'a.string' has type string; an integer is needed");
  EXPECT_EQ(m.get_u32("a.i8").error().message, "metadata key 'a.i8' is -100; it must lie between 0 and 4294967295");
  EXPECT_EQ(m.get_i32("a.u32").error().code, ErrorCode::corrupt);
  EXPECT_EQ(m.get_i64("a.u64").error().code, ErrorCode::corrupt);
  EXPECT_EQ(m.get_bool("a.u8").error().code, ErrorCode::corrupt);
  EXPECT_EQ(m.get_u32("a.bool").error().code, ErrorCode::corrupt);
  EXPECT_EQ(m.get_f32("a.u8").error().code, ErrorCode::corrupt);
  EXPECT_EQ(m.get_string_array("b.i32").error().message,
            "metadata key 'b.i32' has type array of i32 (3); an array of string is needed");
  EXPECT_EQ(m.get_int_array("b.u64").error().code, ErrorCode::corrupt);
  EXPECT_EQ(m.get_int_array("b.f32").error().code, ErrorCode::corrupt);
}

TEST(GgufRead, Tensors) {
  File file = open_seed("gguf/every_type.gguf");
  ASSERT_EQ(file.tensors().size(), 7u);
  const TensorInfo* scalar = file.find_tensor("scalar");
  ASSERT_NE(scalar, nullptr);
  EXPECT_TRUE(scalar->shape.empty());
  EXPECT_EQ(scalar->bytes, 4u);
  EXPECT_EQ(scalar->values(), 1);
  float three = 0;
  std::memcpy(&three, scalar->data, 4);
  EXPECT_EQ(three, 3.0f);
  const TensorInfo* q4_k = file.find_tensor("q4_k");
  EXPECT_EQ(q4_k->type, TensorType::q4_k);
  EXPECT_EQ(q4_k->shape, (std::vector<int64_t>{256, 2, 2}));
  EXPECT_EQ(q4_k->bytes, 576u);
  for (size_t i = 0; i < q4_k->bytes; ++i) ASSERT_EQ(static_cast<unsigned>(q4_k->data[i]), i % 251);
  EXPECT_EQ(file.find_tensor("q8")->bytes, 204u);
  EXPECT_EQ(file.find_tensor("int")->type, TensorType::i32);
  EXPECT_EQ(file.find_tensor("none"), nullptr);
}

TEST(GgufRead, Version2AndAlignment) {
  EXPECT_EQ(open_seed("gguf/version2.gguf").version(), 2u);
  File vocabulary = open_seed("gguf/vocabulary.gguf");
  EXPECT_EQ(vocabulary.alignment(), 64u);
  EXPECT_EQ(vocabulary.tensors()[0].bytes, 288u);
  EXPECT_TRUE(open_seed("gguf/empty.gguf").tensors().empty());
}

TEST(GgufRead, SplitFiles) {
  File file = open_seed("gguf/split-00001-of-00002.gguf");
  EXPECT_EQ(file.parts(), 2u);
  EXPECT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.find_tensor("two")->shape, (std::vector<int64_t>{3}));
  EXPECT_EQ(file.file_bytes(), 224u + 192u);
}

/// Writes a file with one value of each kind and some tensors, returns the bytes of the tensors as written.
Expected<std::string> write_sample(const std::filesystem::path& path, uint32_t alignment) {
  auto writer = Writer::create(path, alignment);
  if (!writer) return tl::unexpected(writer.error());
  File source = open_seed("gguf/every_type.gguf");
  for (const auto& [key, value] : source.metadata().entries())
    EXPECT_TRUE(writer->metadata().add(key, value).has_value());
  for (const auto& tensor : source.tensors()) {
    EXPECT_TRUE(writer->add_tensor(tensor.name, tensor.type, tensor.shape).has_value());
  }
  std::string data;
  for (const auto& tensor : source.tensors()) data.append(reinterpret_cast<const char*>(tensor.data), tensor.bytes);
  uint64_t total = writer->total_bytes();
  if (auto begun = writer->begin_data(); !begun) return tl::unexpected(begun.error());
  for (size_t i = 0; i < data.size(); i += 100) {  // pieces that end anywhere
    if (auto wrote = writer->write(as_bytes(std::string_view(data).substr(i, 100))); !wrote)
      return tl::unexpected(wrote.error());
  }
  if (auto done = writer->commit(); !done) return tl::unexpected(done.error());
  EXPECT_EQ(std::filesystem::file_size(path), total);
  return data;
}

TEST(GgufWrite, ReadsBackTheSame) {
  for (uint32_t alignment : {8u, 32u, 4096u}) {
    TestFolder folder;
    auto path = folder / "out.gguf";
    auto written = write_sample(path, alignment);
    ASSERT_TRUE(written.has_value()) << written.error().message;
    auto file = File::open(path);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    File source = open_seed("gguf/every_type.gguf");
    EXPECT_EQ(file->alignment(), alignment);
    for (const auto& [key, value] : source.metadata().entries()) {
      const Value* read = file->metadata().find(key);
      ASSERT_NE(read, nullptr) << key;
      EXPECT_EQ(read->variant(), value.variant()) << key;
    }
    std::string data;
    for (const auto& tensor : file->tensors()) {
      EXPECT_EQ(tensor.shape, source.find_tensor(tensor.name)->shape);
      EXPECT_EQ(tensor.type, source.find_tensor(tensor.name)->type);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % alignment, 0u);
      data.append(reinterpret_cast<const char*>(tensor.data), tensor.bytes);
    }
    EXPECT_EQ(data, *written);
  }
}

TEST(GgufWrite, SameBytesAsTheIndependentWriter) {
  TestFolder folder;
  ASSERT_TRUE(write_sample(folder / "out.gguf", kDefaultAlignment).has_value());
  EXPECT_EQ(*read_text_file(folder / "out.gguf"), read_seed("gguf/every_type.gguf"));
}

TEST(GgufWrite, BothLayoutsOfQ2_0) {
  TestFolder folder;
  auto writer = Writer::create(folder / "out.gguf");
  ASSERT_TRUE(writer.has_value());
  ASSERT_TRUE(writer->add_tensor("older", TensorType::q2_0_g128, {4096}).has_value());
  ASSERT_TRUE(writer->add_tensor("newer", TensorType::q2_0, {4096}).has_value());
  ASSERT_TRUE(writer->begin_data().has_value());
  ASSERT_TRUE(writer->write(as_bytes(std::string(4096 / 128 * 34 + 4096 / 64 * 18, 'x'))).has_value());
  ASSERT_TRUE(writer->commit().has_value());
  auto file = File::open(folder / "out.gguf");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->find_tensor("older")->type, TensorType::q2_0_g128);
  EXPECT_EQ(file->find_tensor("newer")->type, TensorType::q2_0);
}

TEST(GgufWrite, RefusesWrongUse) {
  TestFolder folder;
  auto writer = Writer::create(folder / "out.gguf");
  ASSERT_TRUE(writer.has_value());
  ASSERT_TRUE(writer->metadata().add("k", Value(1)).has_value());
  EXPECT_EQ(writer->metadata().add("k", Value(2)).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(writer->metadata().add("", Value(2)).error().code, ErrorCode::invalid_argument);
  ASSERT_TRUE(writer->add_tensor("t", TensorType::q8_0, {32, 2}).has_value());
  EXPECT_EQ(writer->add_tensor("t", TensorType::f32, {1}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(writer->add_tensor("odd", TensorType::q8_0, {33}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(writer->add_tensor("zero", TensorType::f32, {4, 0}).error().code, ErrorCode::invalid_argument);
  EXPECT_FALSE(writer->write(as_bytes("x")).has_value());
  ASSERT_TRUE(writer->begin_data().has_value());
  ASSERT_TRUE(writer->write(as_bytes(std::string(67, 'x'))).has_value());
  EXPECT_FALSE(writer->commit().has_value());
  EXPECT_FALSE(writer->write(as_bytes("xx")).has_value());
  EXPECT_EQ(folder.files(), 0u);
}

TEST(GgufWrite, FullDiskLeavesNothing) {
  for (rlim_t limit : {0, 100, 1500, 2207}) {
    TestFolder folder;
    FileSizeLimit full(limit);
    auto written = write_sample(folder / "out.gguf", kDefaultAlignment);
    ASSERT_FALSE(written.has_value()) << limit;
    EXPECT_EQ(written.error().code, ErrorCode::io);
    EXPECT_TRUE(contains(written.error().message, "out.gguf")) << written.error().message;
    EXPECT_EQ(folder.files(), 0u);
  }
}

TEST(GgufRead, LargeVocabulariesLoadQuickly) {
  TestFolder folder;
  StringArray tokens, merges;
  for (int i = 0; i < 262144; ++i) tokens.push_back("token" + std::to_string(i));
  for (int i = 0; i < 515000; ++i) merges.push_back("left" + std::to_string(i) + " right" + std::to_string(i));
  auto writer = Writer::create(folder / "vocabulary.gguf");
  ASSERT_TRUE(writer.has_value());
  ASSERT_TRUE(writer->metadata().add("tokens", Value(tokens)).has_value());
  ASSERT_TRUE(writer->metadata().add("merges", Value(merges)).has_value());
  ASSERT_TRUE(writer->begin_data().has_value());
  ASSERT_TRUE(writer->commit().has_value());
  auto begin = std::chrono::steady_clock::now();
  auto file = File::open(folder / "vocabulary.gguf");
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_TRUE(**file->metadata().get_string_array("tokens") == tokens);
  EXPECT_TRUE(**file->metadata().get_string_array("merges") == merges);
  RecordProperty("milliseconds", static_cast<int>(seconds.count() * 1000));
  EXPECT_LT(seconds.count(),
            5.0);  // about 0.02 s in a release build; a bound that sanitizers and busy machines meet too
}

}  // namespace
}  // namespace cohort::gguf
