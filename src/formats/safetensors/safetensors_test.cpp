#include "formats/safetensors/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/test_disk_full.h"
#include "base/test_folder.h"
#include "formats/test_bytes.h"

namespace cohort::safetensors {
namespace {

std::string error_of(const std::string& bytes) {
  std::vector<char> copy(bytes.begin(),
                         bytes.end());  // an exact allocation, so that a sanitizer sees any read past the end
  auto file = File::from_bytes(std::as_bytes(std::span(copy)), "x.safetensors");
  return file ? "" : file.error().message;
}

std::string with_header(std::string_view header, size_t data) {
  return TestBytes().string(header).zeros(data).str();
}

std::string entry(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return R"({"w":{"dtype":")" + std::string(dtype) + R"(","shape":)" + std::string(shape) + R"(,"data_offsets":)" +
         std::string(offsets) + "}}";
}

TEST(SafetensorsRead, EveryType) {
  auto file = File::open(seed_path("safetensors/every_type.safetensors"));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_EQ(file->metadata().at("note"), "na\u00efve");
  ASSERT_EQ(file->tensors().size(), 18u);
  size_t offset = 0;
  for (const auto& tensor : file->tensors()) {
    if (tensor.name == "none") {
      EXPECT_EQ(tensor.shape, (std::vector<int64_t>{0, 4}));
      EXPECT_EQ(tensor.bytes, 0u);
      continue;
    }
    if (tensor.name == "scalar") {
      EXPECT_TRUE(tensor.shape.empty());
      EXPECT_EQ(tensor.bytes, 4u);
    } else {
      EXPECT_EQ(tensor.name, "t." + std::string(dtype_name(tensor.dtype)));
      EXPECT_EQ(tensor.shape, (std::vector<int64_t>{2, 3}));
      EXPECT_EQ(tensor.bytes, 6 * dtype_bytes(tensor.dtype));
    }
    for (size_t i = 0; i < tensor.bytes; ++i) ASSERT_EQ(static_cast<size_t>(tensor.data[i]), (offset + i) % 251);
    offset += tensor.bytes;
  }
  EXPECT_TRUE(File::open(seed_path("safetensors/small.safetensors")).has_value());
  EXPECT_TRUE(File::open(seed_path("safetensors/empty.safetensors"))->tensors().empty());
}

TEST(SafetensorsBad, TruncatedAnywhere) {
  for (const char* name : {"safetensors/every_type.safetensors", "safetensors/small.safetensors"}) {
    std::string whole = read_seed(name);
    EXPECT_EQ(error_of(whole), "");
    for (size_t size = 0; size < whole.size(); ++size)
      ASSERT_NE(error_of(whole.substr(0, size)), "") << name << " " << size;
  }
}

TEST(SafetensorsBad, EveryByteChanged) {
  std::string whole = read_seed("safetensors/every_type.safetensors");
  int accepted = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    for (char byte : {'\0', '0', '9', '"', '{', '\xff'}) {
      std::string changed = whole;
      changed[i] = byte;
      accepted += error_of(changed).empty();
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST(SafetensorsBad, Header) {
  EXPECT_TRUE(contains(error_of("1234567"), "7 bytes"));
  EXPECT_TRUE(contains(error_of(TestBytes().put<uint64_t>(~uint64_t{0}).zeros(10).str()), "at most 10 are possible"));
  EXPECT_TRUE(contains(error_of(TestBytes().put<uint64_t>(11).zeros(10).str()), "the header claims 11 bytes"));
  EXPECT_TRUE(contains(error_of(with_header("[]", 0)), "the header has type array"));
  EXPECT_TRUE(contains(error_of(with_header("{", 0)), "invalid JSON"));
  EXPECT_TRUE(contains(error_of(with_header(R"({"w":3})", 0)), "entry of tensor 'w' has type number"));
  EXPECT_TRUE(contains(error_of(with_header(R"({"__metadata__":{"a":1}})", 0)), "'a' has type number"));
  EXPECT_TRUE(contains(error_of(with_header(R"({"__metadata__":[]})", 0)), "'__metadata__' has type array"));
  std::string twice =
      R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})";
  EXPECT_TRUE(contains(error_of(with_header(twice, 2)), "key 'w' occurs twice"));
}

TEST(SafetensorsBad, Entries) {
  EXPECT_EQ(error_of(with_header(entry("F32", "[2,2]", "[0,16]"), 16)), "");
  EXPECT_TRUE(contains(error_of(with_header(entry("F4", "[2,2]", "[0,16]"), 16)), "tensor 'w' has type 'F4'"));
  EXPECT_TRUE(contains(error_of(with_header(entry("F32", "[2,3]", "[0,16]"), 16)),
                       "has 16 bytes, but its shape [2, 3] of F32 needs 24"));
  EXPECT_TRUE(contains(error_of(with_header(entry("F32", "[2,-2]", "[0,16]"), 16)), "shape holds -2"));
  EXPECT_TRUE(contains(error_of(with_header(entry("F32", "[2,2.0]", "[0,16]"), 16)), "shape holds 2.0"));
  EXPECT_TRUE(contains(error_of(with_header(entry("F32", "4", "[0,16]"), 16)), "'shape' has type number"));
  EXPECT_TRUE(contains(error_of(with_header(entry("F32", "[4]", "[0,16,32]"), 16)), "data_offsets has 3 numbers"));
  EXPECT_TRUE(contains(error_of(with_header(entry("F32", "[4]", "[16,0]"), 16)), "data bytes 16 to 0"));
  EXPECT_TRUE(contains(error_of(with_header(entry("F32", "[4]", "[0,17]"), 16)), "holds 16 bytes of data"));
  EXPECT_TRUE(
      contains(error_of(with_header(entry("F32", "[4]", "[0,18446744073709551615]"), 16)), "data_offsets holds"));
  std::string huge = "[4294967296,4294967296]";
  EXPECT_TRUE(contains(error_of(with_header(entry("F32", huge, "[0,16]"), 16)), "more than 64 bits"));
  EXPECT_TRUE(contains(error_of(with_header(R"({"w":{"dtype":"U8","shape":[1]}})", 1)), "has no 'data_offsets'"));
}

TEST(SafetensorsBad, Overlap) {
  auto two = [](const char* a, const char* b) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string(a) +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
  };
  EXPECT_EQ(error_of(with_header(two("[0,4]", "[4,8]"), 8)), "");
  EXPECT_TRUE(contains(error_of(with_header(two("[0,4]", "[3,7]"), 8)), "'a' and 'b' overlap at data byte 3"));
  EXPECT_TRUE(contains(error_of(with_header(two("[0,4]", "[0,4]"), 8)), "overlap"));
}

// ---- folders ----

std::string one_tensor_file(std::string_view name) {
  return with_header(R"({")" + std::string(name) + R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4);
}

class SafetensorsFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder.write("a.safetensors", one_tensor_file("x"));
    folder.write("b.safetensors", one_tensor_file("y"));
  }
  void index(std::string_view map) {
    folder.write("model.safetensors.index.json", R"({"metadata":{},"weight_map":)" + std::string(map) + "}");
  }
  std::string open() {
    auto opened = Folder::open(folder.path());
    return opened ? "" : opened.error().message;
  }
  TestFolder folder;
};

TEST_F(SafetensorsFolder, Shards) {
  index(R"({"x":"a.safetensors","y":"b.safetensors"})");
  auto opened = Folder::open(folder.path());
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_EQ(opened->files(), 2u);
  ASSERT_NE(opened->find("y"), nullptr);
  EXPECT_EQ(opened->find("y")->bytes, 4u);
  EXPECT_EQ(opened->find("z"), nullptr);
}

TEST_F(SafetensorsFolder, SingleFile) {
  EXPECT_TRUE(contains(open(), "2 safetensors files but no model.safetensors.index.json"));
  std::filesystem::remove(folder / "b.safetensors");
  EXPECT_EQ(open(), "");
  folder.write("model.safetensors", one_tensor_file("m"));
  EXPECT_NE(Folder::open(folder.path())->find("m"), nullptr);
}

TEST_F(SafetensorsFolder, MissingShards) {
  index(R"({"x":"a.safetensors","y":"c.safetensors","z":"d.safetensors"})");
  auto opened = Folder::open(folder.path());
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, ErrorCode::not_found);
  EXPECT_TRUE(contains(opened.error().message, "missing: c.safetensors, d.safetensors")) << opened.error().message;
}

TEST_F(SafetensorsFolder, IndexThatContradictsTheFiles) {
  index(R"({"x":"b.safetensors","y":"a.safetensors"})");
  EXPECT_TRUE(contains(open(), "tensor 'x' is in 'b.safetensors', but it is in 'a.safetensors'"));
  index(R"({"x":"a.safetensors","q":"b.safetensors"})");
  EXPECT_TRUE(contains(open(), "tensor 'q' is in 'b.safetensors', but it is in none"));
  index(R"({"x":3})");
  EXPECT_TRUE(contains(open(), "tensor 'x' has type number"));
  index("{}");
  EXPECT_TRUE(contains(open(), "weight_map is empty"));
  index("[]");
  EXPECT_TRUE(contains(open(), "'weight_map' has type array"));
}

TEST_F(SafetensorsFolder, IndexThatLeavesTheFolder) {
  for (const char* name : {"../a.safetensors", "/etc/passwd", "sub/a.safetensors", "..", ""}) {
    index(R"({"x":")" + std::string(name) + R"("})");
    EXPECT_TRUE(contains(open(), "only a plain file name is possible")) << name;
  }
}

TEST_F(SafetensorsFolder, SameTensorInTwoShards) {
  folder.write("b.safetensors", one_tensor_file("x"));
  index(R"({"x":"a.safetensors","y":"b.safetensors"})");
  EXPECT_TRUE(contains(open(), "tensor 'x' is in 'a.safetensors' and in 'b.safetensors'"));
}

TEST(SafetensorsFolderBad, NothingThere) {
  TestFolder folder;
  EXPECT_TRUE(contains(Folder::open(folder.path()).error().message, "holds neither model.safetensors nor"));
  folder.write("pytorch_model.bin", "x");
  EXPECT_TRUE(contains(Folder::open(folder.path()).error().message, "must be saved as safetensors first"));
  EXPECT_TRUE(contains(Folder::open(folder / "none").error().message, "is no folder"));
}

TEST(SafetensorsWrite, ReadsBackTheSame) {
  TestFolder folder;
  std::vector<float> numbers = {1, 2, 3, 4, 5, 6};
  std::vector<uint8_t> bytes = {7, 8, 9};
  std::vector<TensorToWrite> tensors = {{"f", DType::f32, {2, 3}, std::as_bytes(std::span(numbers))},
                                        {"u", DType::u8, {3}, std::as_bytes(std::span(bytes))}};
  auto path = folder / "model.safetensors";
  ASSERT_TRUE(write_file(path, tensors, {{"format", "pt"}}).has_value());
  auto opened = Folder::open(folder.path());
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  ASSERT_EQ(opened->tensors().size(), 2u);
  std::vector<float> read(numbers.size());
  std::memcpy(read.data(), opened->find("f")->data, 24);
  EXPECT_EQ(read, numbers);
  EXPECT_EQ(opened->find("f")->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(opened->find("u")->data, bytes.data(), 3), 0);
}

TEST(SafetensorsWrite, FullDiskLeavesNothing) {
  TestFolder folder;
  std::vector<float> numbers(1000);
  std::vector<TensorToWrite> tensors = {{"f", DType::f32, {1000}, std::as_bytes(std::span(numbers))}};
  FileSizeLimit full(2000);
  auto written = write_file(folder / "model.safetensors", tensors);
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, ErrorCode::io);
  EXPECT_EQ(folder.files(), 0u);
}

}  // namespace
}  // namespace cohort::safetensors
