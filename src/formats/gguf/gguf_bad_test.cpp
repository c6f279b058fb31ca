// GGUF files that are damaged or hostile: each is refused with a message that names the thing, never read out of
// bounds.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/test_folder.h"
#include "formats/gguf/gguf.h"
#include "formats/test_bytes.h"

namespace cohort::gguf {
namespace {

/// The message of the error, or "" when the bytes are accepted.
std::string error_of(const std::string& bytes) {
  // An exact allocation, so that a sanitizer sees any read past the end.
  std::vector<char> copy(bytes.begin(), bytes.end());
  auto file = File::from_bytes(std::as_bytes(std::span(copy)), "x.gguf");
  return file ? "" : file.error().message;
}

TestBytes header(uint64_t tensors, uint64_t entries, uint32_t version = 3) {
  TestBytes bytes;
  bytes.text("GGUF").put<uint32_t>(version).put<uint64_t>(tensors).put<uint64_t>(entries);
  return bytes;
}

/// A header with one tensor entry, padded, and `data` bytes after it.
std::string one_tensor(const std::vector<uint64_t>& shape, uint32_t type, uint64_t offset, size_t data) {
  TestBytes bytes = header(1, 0);
  bytes.string("t").put<uint32_t>(static_cast<uint32_t>(shape.size()));
  for (uint64_t dimension : shape) bytes.put(dimension);
  return bytes.put(type).put(offset).pad(32).zeros(data).str();
}

TEST(GgufBad, TruncatedAnywhere) {
  for (const char* name : {"gguf/every_type.gguf", "gguf/version2.gguf", "gguf/vocabulary.gguf"}) {
    std::string whole = read_seed(name);
    EXPECT_EQ(error_of(whole), "");
    File file = *File::from_bytes(as_bytes(whole), "x.gguf");
    const TensorInfo* last = &file.tensors()[0];
    for (const auto& tensor : file.tensors())
      last = std::max(last, &tensor, [](auto* a, auto* b) { return a->data < b->data; });
    size_t needed = static_cast<size_t>(last->data - as_bytes(whole).data()) + last->bytes;
    for (size_t size = 0; size < needed; ++size) ASSERT_NE(error_of(whole.substr(0, size)), "") << name << " " << size;
    EXPECT_EQ(error_of(whole.substr(0, needed)), "");  // the padding after the last tensor is not needed
  }
}

TEST(GgufBad, EveryByteChanged) {
  // Any outcome but a crash is right (the sanitizers watch); a change of a count or length must not allocate what it
  // claims.
  std::string whole = read_seed("gguf/every_type.gguf");
  int accepted = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    for (char byte : {'\0', '\x01', '\x7f', '\xff'}) {
      std::string changed = whole;
      changed[i] = byte;
      accepted += error_of(changed).empty();
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST(GgufBad, MagicVersionByteOrder) {
  EXPECT_TRUE(contains(error_of("GGML0123456789012345678901"), "no GGUF file: it begins with bytes 47 47 4d 4c"));
  EXPECT_TRUE(contains(error_of(header(0, 0, 1).str()), "version 1; versions 2 and 3"));
  EXPECT_TRUE(contains(error_of(header(0, 0, 4).str()), "version 4"));
  EXPECT_TRUE(contains(error_of(header(0, 0, 0x03000000).str()), "big-endian"));
  EXPECT_TRUE(contains(error_of("GGUF"), "ends inside the version at byte 4"));
}

TEST(GgufBad, CountsThatCannotFit) {
  for (uint64_t count : {uint64_t{5}, uint64_t{1} << 40, ~uint64_t{0}}) {
    EXPECT_TRUE(contains(error_of(header(0, count).zeros(40).str()), "metadata entries cannot fit"));
    EXPECT_TRUE(contains(error_of(header(count, 0).zeros(40).str()), "tensors cannot fit"));
    TestBytes strings = header(0, 1);
    strings.string("k").put<uint32_t>(9).put<uint32_t>(8).put(count).zeros(16);
    EXPECT_TRUE(contains(error_of(strings.str()), "strings at byte")) << error_of(strings.str());
    TestBytes numbers = header(0, 1);
    numbers.string("k").put<uint32_t>(9).put<uint32_t>(10).put(count).zeros(16);
    EXPECT_TRUE(contains(error_of(numbers.str()), "only 16 bytes are left (metadata key 'k')"))
        << error_of(numbers.str());
    TestBytes arrays = header(0, 1);
    arrays.string("k").put<uint32_t>(9).put<uint32_t>(9).put(count).zeros(16);
    EXPECT_TRUE(contains(error_of(arrays.str()), "arrays at byte")) << error_of(arrays.str());
  }
  TestBytes key = header(0, 1);
  key.put<uint64_t>(~uint64_t{0}).zeros(20);
  EXPECT_TRUE(contains(error_of(key.str()), "a metadata key at byte")) << error_of(key.str());
}

TEST(GgufBad, NestedTooDeep) {
  TestBytes bytes = header(0, 1);
  bytes.string("k").put<uint32_t>(9);
  for (int i = 0; i < 1000; ++i) bytes.put<uint32_t>(9).put<uint64_t>(1);
  bytes.put<uint32_t>(0).put<uint64_t>(0);
  EXPECT_TRUE(contains(error_of(bytes.str()), "nest deeper than 16"));
}

TEST(GgufBad, Metadata) {
  EXPECT_TRUE(contains(error_of(header(0, 1).string("k").put<uint32_t>(13).zeros(8).str()), "metadata type 13"));
  EXPECT_TRUE(contains(error_of(header(0, 1).string("k").put<uint32_t>(9).put<uint32_t>(99).zeros(8).str()),
                       "metadata type 99"));
  EXPECT_TRUE(
      contains(error_of(header(0, 1).string("k").put<uint32_t>(7).put<uint8_t>(2).str()), "a bool before byte"));
  EXPECT_TRUE(contains(error_of(header(0, 1).string("").put<uint32_t>(4).put<uint32_t>(2).str()), "key has 0 bytes"));
  TestBytes twice = header(0, 2);
  for (int i = 0; i < 2; ++i) twice.string("general.name").put<uint32_t>(4).put<uint32_t>(2);
  EXPECT_TRUE(contains(error_of(twice.str()), "'general.name' occurs twice"));
  for (uint32_t alignment : {0u, 4u, 33u}) {
    TestBytes bytes = header(0, 1);
    bytes.string("general.alignment").put<uint32_t>(4).put(alignment);
    EXPECT_TRUE(contains(error_of(bytes.str()), "power of two, 8 or more")) << alignment;
  }
  EXPECT_TRUE(contains(error_of(header(0, 1).string("general.alignment").put<uint32_t>(8).string("32").str()),
                       "has type string"));
}

TEST(GgufBad, TensorShapes) {
  EXPECT_EQ(error_of(one_tensor({8, 4}, 0, 0, 128)), "");
  EXPECT_TRUE(contains(error_of(one_tensor({8, 0}, 0, 0, 128)), "dimension 1 of tensor 't' is 0"));
  EXPECT_TRUE(contains(error_of(one_tensor({8, uint64_t{1} << 63}, 0, 0, 128)),
                       "dimension 1 of tensor 't' is 9223372036854775808"));
  EXPECT_TRUE(contains(error_of(one_tensor({1, 1, 1, 1, 1}, 0, 0, 128)), "5 dimensions; at most 4"));
  EXPECT_TRUE(contains(error_of(one_tensor({33, 2}, 8, 0, 128)),
                       "rows of 33 values, but blocks of type 8 (q8_0) hold 32 in 34 bytes"));
  // Products that overflow: of the values, and only of the bytes.
  uint64_t big = uint64_t{1} << 32;
  EXPECT_TRUE(contains(error_of(one_tensor({big, big}, 0, 0, 128)), "more bytes than 64 bits"));
  EXPECT_TRUE(contains(error_of(one_tensor({big, big / 2, 1, 1}, 0, 0, 128)), "more bytes than 64 bits"));
  EXPECT_TRUE(contains(error_of(one_tensor({big, big / 8}, 0, 0, 128)), "more bytes than 64 bits"));
  EXPECT_TRUE(
      contains(error_of(one_tensor({big, big / 16}, 0, 0, 128)), "needs 4611686018427387904 bytes at data offset 0"));
}

TEST(GgufBad, TensorTypes) {
  EXPECT_TRUE(contains(error_of(one_tensor({32}, 77, 0, 128)), "tensor 't' has type 77: unknown to this build"));
  EXPECT_TRUE(contains(error_of(one_tensor({32}, 31, 0, 128)), "Q4_0_4_4 (removed"));
  EXPECT_TRUE(contains(error_of(one_tensor({32}, 9, 0, 128)), "Q8_1 (not a weight type)"));
  EXPECT_EQ(error_of(one_tensor({128, 4}, 42, 0, 144)), "");
  EXPECT_EQ(error_of(one_tensor({128, 4}, 42, 0, 136)), "");  // the older layout
  EXPECT_TRUE(contains(error_of(one_tensor({128, 4}, 42, 0, 135)), "needs 144 bytes"));
  EXPECT_TRUE(contains(error_of(one_tensor({64, 8}, 42, 0, 136)), "needs 144 bytes"));
  std::string older = one_tensor({128, 4}, 42, 0, 136);
  EXPECT_EQ(File::from_bytes(as_bytes(older), "x")->tensors()[0].type, TensorType::q2_0_g128);
  std::string newer = one_tensor({128, 4}, 42, 0, 144);
  EXPECT_EQ(File::from_bytes(as_bytes(newer), "x")->tensors()[0].type, TensorType::q2_0);
}

TEST(GgufBad, TensorOffsets) {
  EXPECT_EQ(error_of(one_tensor({8}, 0, 96, 128)), "");
  EXPECT_TRUE(
      contains(error_of(one_tensor({8}, 0, 128, 128)), "needs 32 bytes at data offset 128, but the file holds 128"));
  EXPECT_TRUE(contains(error_of(one_tensor({8}, 0, 160, 128)), "truncated or damaged"));
  EXPECT_TRUE(
      contains(error_of(one_tensor({8}, 0, 4, 128)), "data offset 4, which is no multiple of the alignment 32"));
  EXPECT_TRUE(contains(error_of(one_tensor({8}, 0, ~uint64_t{31}, 128)), "truncated or damaged"));
  TestBytes overlap = header(2, 0);
  overlap.string("a").put<uint32_t>(1).put<uint64_t>(16).put<uint32_t>(0).put<uint64_t>(0);
  overlap.string("b").put<uint32_t>(1).put<uint64_t>(8).put<uint32_t>(0).put<uint64_t>(32);
  EXPECT_TRUE(contains(error_of(overlap.pad(32).zeros(128).str()), "'a' and 'b' overlap at data offset 32"));
}

TEST(GgufBad, TensorNames) {
  TestBytes twice = header(2, 0);
  for (uint64_t offset : {0, 32}) twice.string("t").put<uint32_t>(1).put<uint64_t>(8).put<uint32_t>(0).put(offset);
  EXPECT_TRUE(contains(error_of(twice.pad(32).zeros(64).str()), "tensor 't' occurs twice"));
  TestBytes empty = header(1, 0);
  empty.string("").put<uint32_t>(1).put<uint64_t>(8).put<uint32_t>(0).put<uint64_t>(0);
  EXPECT_TRUE(contains(error_of(empty.pad(32).zeros(64).str()), "name of tensor 0 has 0 bytes"));
}

// ---- split files ----

class GgufSplit : public ::testing::Test {
 protected:
  void SetUp() override {
    folder.write("m-00001-of-00002.gguf", read_seed("gguf/split-00001-of-00002.gguf"));
    folder.write("m-00002-of-00002.gguf", read_seed("gguf/split-00002-of-00002.gguf"));
  }
  std::string open(std::string_view name) {
    auto file = File::open(folder / name);
    return file ? "" : file.error().message;
  }
  TestFolder folder;
};

TEST_F(GgufSplit, Opens) {
  EXPECT_EQ(open("m-00001-of-00002.gguf"), "");
}

TEST_F(GgufSplit, MissingPart) {
  std::filesystem::remove(folder / "m-00002-of-00002.gguf");
  auto file = File::open(folder / "m-00001-of-00002.gguf");
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, ErrorCode::not_found);
  EXPECT_TRUE(contains(file.error().message, "part 2 of 2")) << file.error().message;
  EXPECT_TRUE(contains(file.error().message, "m-00002-of-00002.gguf"));
}

TEST_F(GgufSplit, NotTheFirstPart) {
  EXPECT_TRUE(contains(open("m-00002-of-00002.gguf"), "m-00001-of-00002.gguf"));
}

TEST_F(GgufSplit, Renamed) {
  folder.write("model.gguf", read_seed("gguf/split-00001-of-00002.gguf"));
  EXPECT_TRUE(contains(open("model.gguf"), "must end in -00001-of-00002.gguf"));
  folder.write("m-00001-of-00003.gguf", read_seed("gguf/split-00001-of-00002.gguf"));
  EXPECT_TRUE(contains(open("m-00001-of-00003.gguf"), "must end in -00001-of-00002.gguf"));
}

TEST_F(GgufSplit, MixedUp) {
  folder.write("m-00002-of-00002.gguf", read_seed("gguf/split-00001-of-00002.gguf"));
  EXPECT_TRUE(contains(open("m-00001-of-00002.gguf"), "the parts are mixed up"));
}

TEST_F(GgufSplit, TruncatedPart) {
  folder.write("m-00002-of-00002.gguf", read_seed("gguf/split-00002-of-00002.gguf").substr(0, 165));
  EXPECT_TRUE(contains(open("m-00001-of-00002.gguf"), "m-00002-of-00002.gguf")) << open("m-00001-of-00002.gguf");
}

TEST_F(GgufSplit, WrongTensorCountAndDuplicates) {
  std::string first = read_seed("gguf/split-00001-of-00002.gguf");
  std::string other = first;
  size_t place = other.find("split.tensors.count") + 19 + 4;
  other[place] = 3;
  folder.write("m-00001-of-00002.gguf", other);
  EXPECT_TRUE(contains(open("m-00001-of-00002.gguf"), "hold 2 tensors; split.tensors.count says 3"));
  folder.write("m-00001-of-00002.gguf", first);
  std::string second = read_seed("gguf/split-00002-of-00002.gguf");
  second.replace(second.find("two"), 3, "one");
  folder.write("m-00002-of-00002.gguf", second);
  EXPECT_TRUE(contains(open("m-00001-of-00002.gguf"), "tensor 'one' occurs twice"));
}

TEST_F(GgufSplit, NotFromMemory) {
  EXPECT_TRUE(contains(error_of(read_seed("gguf/split-00001-of-00002.gguf")), "one of 2 parts"));
}

}  // namespace
}  // namespace cohort::gguf
