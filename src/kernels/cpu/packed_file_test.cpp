#include "kernels/cpu/packed_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/test_folder.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/random_model.h"
#include "kv/cache.h"

namespace cohort::cpu {
namespace {

using Mode = PackedCache::Mode;

ModelConfig config() {
  ModelConfig c;
  c.architecture = "qwen3moe";
  c.layers = 1;
  c.hidden = 256;
  c.heads = 8;
  c.kv_heads = 2;
  c.head_dim = 32;
  c.rotary_dims = 32;
  c.vocabulary = 100;
  c.context = 64;
  c.inner = 256;
  c.experts = 4;
  c.top_k = 2;
  c.expert_inner = 256;
  return c;
}

struct World {
  TestFolder folder;
  std::filesystem::path model = folder.write("model.gguf", "stands for the model's file");
  std::unique_ptr<testing::RandomModel> random =
      std::move(*testing::random_model(config(), [](const std::string& name) {
        return name.find("down") != std::string::npos ? TensorType::q6_k : TensorType::q4_k;
      }));
  PackedCache cache;

  explicit World(Mode mode) {
    cache.mode = mode;
    cache.file = default_packed_file(model);
    identify();
  }
  void identify() { cache.source = *source_identity(model); }
  Expected<std::unique_ptr<CpuBackend>> load() const {
    CpuOptions options;
    options.threads = 2;
    options.packed = cache;
    return make_cpu_backend(random->program, options);
  }
  /// What the packed file does not fit for, or "" when it does.
  std::string refusal() {
    cache.mode = Mode::use;
    const auto backend = load();
    return backend ? "" : backend.error().message;
  }
  std::string bytes() const { return *read_text_file(cache.file); }
};

std::vector<float> logits_of(CpuBackend& backend) {
  EXPECT_TRUE(backend.allocate_cache(TensorType::f16, 1));
  const std::vector<int32_t> pages = {0};
  Batch batch;
  batch.tokens = {5, 17, 99};
  batch.positions = {0, 1, 2};
  batch.sequences = {{0, 3, 0, pages}};
  batch.sampled_rows = {0, 1, 2};
  std::vector<float> logits(300);
  EXPECT_TRUE(backend.run(batch, logits));
  return logits;
}

TEST(packed_file, a_second_start_maps_what_the_first_wrote) {
  World world(Mode::off);
  auto plain = world.load();
  ASSERT_TRUE(plain);
  const auto expected = logits_of(**plain);
  EXPECT_EQ(world.folder.files(), 1U);

  world.cache.mode = Mode::automatic;
  const auto first = world.load();
  ASSERT_TRUE(first);
  EXPECT_EQ((*first)->description().find("packed file"), std::string::npos);
  EXPECT_EQ(world.folder.files(), 2U);
  EXPECT_EQ(logits_of(**first), expected);

  const auto second = world.load();
  ASSERT_TRUE(second);
  EXPECT_NE((*second)->description().find("packed file"), std::string::npos);
  EXPECT_EQ(logits_of(**second), expected);
  EXPECT_EQ((*second)->packed_bytes(), (*first)->packed_bytes());

  world.cache.mode = Mode::use;
  const auto third = world.load();
  ASSERT_TRUE(third) << third.error().message;
  EXPECT_EQ(logits_of(**third), expected);
}

TEST(packed_file, what_does_not_fit_is_refused_by_name) {
  World world(Mode::write);
  EXPECT_NE(world.refusal().find("cannot open"), std::string::npos);
  world.cache.mode = Mode::write;
  ASSERT_TRUE(world.load());
  EXPECT_EQ(world.refusal(), "");
  const std::string good = world.bytes();

  std::filesystem::resize_file(world.cache.file, good.size() - 1);
  EXPECT_NE(world.refusal().find("bytes; " + std::to_string(good.size()) + " are expected"), std::string::npos)
      << world.refusal();
  std::filesystem::resize_file(world.cache.file, 30);
  EXPECT_NE(world.refusal(), "");
  std::filesystem::resize_file(world.cache.file, 0);
  EXPECT_NE(world.refusal().find("no file of packed weights"), std::string::npos);
  world.folder.write("model.gguf.packed", "something else that is longer than the first line");
  EXPECT_NE(world.refusal().find("no file of packed weights"), std::string::npos);

  for (const auto& [from, to] : {std::pair("format 2", "format 1"), std::pair("layouts ", "layouts 9")}) {
    std::string other = good;
    other.replace(other.find(from), std::string(from).size(), to);
    world.folder.write("model.gguf.packed", other);
    EXPECT_NE(world.refusal().find(std::string("'") + to), std::string::npos) << world.refusal();
  }
  world.folder.write("model.gguf.packed", good);
  EXPECT_EQ(world.refusal(), "");
}

TEST(packed_file, bits_that_rot_are_noticed) {
  World world(Mode::write);
  ASSERT_TRUE(world.load());
  const std::string good = world.bytes();
  for (const size_t at : {kPackedAlignment, kPackedAlignment + 12345, good.size() - 9, good.size() - 1}) {
    for (const int bit : {0, 7}) {
      std::string rotten = good;
      rotten[at] = static_cast<char>(rotten[at] ^ (1 << bit));
      world.folder.write("model.gguf.packed", rotten);
      EXPECT_NE(world.refusal().find("is damaged: the checksum of bytes"), std::string::npos) << at << " " << bit;
    }
  }
  world.cache.mode = Mode::automatic;
  const auto again = world.load();
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ((*again)->description().find("packed file"), std::string::npos);
  EXPECT_EQ(world.bytes(), good);
}

TEST(packed_file, checksums_depend_on_every_word_and_its_place) {
  std::vector<std::byte> bytes(1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  const uint64_t all = checksum(bytes);
  EXPECT_EQ(checksum(bytes), all);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{16};
    EXPECT_NE(checksum(bytes), all) << i;
    bytes[i] ^= std::byte{16};
  }
  EXPECT_NE(checksum(std::span(bytes).first(999)), all);
  std::swap_ranges(bytes.begin(), bytes.begin() + 32, bytes.begin() + 32);
  EXPECT_NE(checksum(bytes), all);
  EXPECT_NE(checksum(std::vector<std::byte>(32)), checksum(std::vector<std::byte>(64)));
}

TEST(packed_file, more_than_one_piece) {
  const TestFolder folder;
  std::vector<std::byte> tiles(3 * kPackedPiece + 640);
  for (size_t i = 0; i < tiles.size(); ++i) tiles[i] = static_cast<std::byte>(i * 31 + i / 4096);
  const auto path = folder / "x.packed";
  const std::string header = packed_header("", "", tiles.size());
  ThreadTeam team(2);
  const auto compare = [&] {
    const auto mapped = map_packed_file(path, header, tiles.size());
    if (!mapped) return mapped.error().message;
    EXPECT_TRUE(std::ranges::equal(mapped->tiles(), tiles));
    const auto same = compare_checksums(path, *mapped, true, team);
    return same ? std::string() : same.error().message;
  };
  ASSERT_TRUE(write_packed_file(path, header, tiles));
  EXPECT_EQ(compare(), "");
  tiles[2 * kPackedPiece + 5] ^= std::byte{1};
  std::string file = *read_text_file(path);
  file[kPackedAlignment + 2 * kPackedPiece + 5] = static_cast<char>(tiles[2 * kPackedPiece + 5]);
  folder.write("x.packed", file);
  EXPECT_NE(compare().find(std::to_string(kPackedAlignment + 2 * kPackedPiece) + " to"), std::string::npos)
      << compare();
}

TEST(packed_file, a_changed_model_is_packed_again) {
  World world(Mode::automatic);
  ASSERT_TRUE(world.load());
  const std::string before = world.bytes();
  world.folder.write("model.gguf", "stands for the model's FILE");  // of the same size
  world.identify();
  EXPECT_NE(world.refusal().find("source model.gguf"), std::string::npos) << world.refusal();
  world.cache.mode = Mode::automatic;
  ASSERT_TRUE(world.load());
  EXPECT_NE(world.bytes(), before);
  EXPECT_EQ(world.refusal(), "");
}

TEST(packed_file, other_matrices_do_not_fit) {
  World world(Mode::automatic);
  ASSERT_TRUE(world.load());
  world.random = std::move(*testing::random_model(config(), [](const std::string&) { return TensorType::q5_k; }));
  EXPECT_NE(world.refusal().find("'matrices "), std::string::npos) << world.refusal();
}

TEST(packed_file, where_nothing_can_be_written_it_runs_all_the_same_unless_writing_was_the_task) {
  World world(Mode::automatic);
  world.cache.file = world.folder / "no such folder" / "x.packed";
  const auto automatic = world.load();
  ASSERT_TRUE(automatic) << automatic.error().message;
  world.cache.mode = Mode::write;
  const auto written = world.load();
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("x.packed"), std::string::npos) << written.error().message;
}

TEST(packed_file, all_files_of_a_model_count) {
  const TestFolder folder;
  folder.write("m-00001-of-00002.gguf", "first");
  folder.write("m-00002-of-00002.gguf", "second");
  folder.write("n-00002-of-00002.gguf", "of another model");
  const auto split = *source_identity(folder / "m-00001-of-00002.gguf");
  EXPECT_NE(split.find("m-00001-of-00002.gguf 5 bytes"), std::string::npos) << split;
  EXPECT_NE(split.find("m-00002-of-00002.gguf 6 bytes"), std::string::npos) << split;
  EXPECT_EQ(split.find("n-0"), std::string::npos) << split;

  const TestFolder checkpoint;
  checkpoint.write("config.json", "{}");
  checkpoint.write("model.safetensors", "x");
  const auto first = *source_identity(checkpoint.path());
  EXPECT_EQ(std::ranges::count(first, '\n'), 2);
  checkpoint.write("model.packed", "the packed file itself does not count");
  EXPECT_EQ(*source_identity(checkpoint.path()), first);
  checkpoint.write("config.json", "{ }");
  EXPECT_NE(*source_identity(checkpoint.path()), first);
  EXPECT_EQ(default_packed_file(checkpoint.path()), checkpoint / "model.packed");
  EXPECT_FALSE(source_identity(checkpoint / "absent.gguf"));
}

}  // namespace
}  // namespace cohort::cpu
