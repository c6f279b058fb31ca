// Packed weights of checkpoint folders against the values that their makers say they stand for
// (tools/make_checkpoint_fixtures.py), and a whole MLX model.
#include "models/packed_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/test_folder.h"
#include "formats/huggingface/huggingface.h"
#include "kernels/cpu/backend.h"
#include "kernels/reference/backend.h"
#include "models/model.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

const fs::path kFixtures = fs::path(COHORT_SOURCE_DIR) / "tests/golden/checkpoints";

struct Loaded {
  Weight weight;
  std::vector<float> values;  // all experts
};

/// A module as a matrix of these sizes.
Expected<Loaded> load(const fs::path& folder, const std::string& module, const std::vector<int64_t>& shape) {
  auto json = huggingface::Folder::open(folder);
  if (!json) return tl::unexpected<Error>(json.error());
  auto quantisation = huggingface::read_quantisation(json->config());
  if (!quantisation) return tl::unexpected<Error>(quantisation.error());
  auto tensors = safetensors::Folder::open(folder);
  if (!tensors) return tl::unexpected<Error>(tensors.error());
  PackedWeights packed(*tensors, *quantisation);
  Loaded out;
  const bool stacked = shape.size() == 3;
  out.weight.experts = stacked ? shape[0] : 1;
  out.weight.rows = shape[shape.size() - 2];
  out.weight.cols = shape.back();
  std::unordered_set<const safetensors::TensorInfo*> used;
  EXPECT_TRUE(packed.has(module));
  if (auto result = packed.load({module}, stacked, out.weight, used); !result)
    return tl::unexpected<Error>(result.error());
  const SliceHold hold(out.weight);
  for (const std::byte* slice : out.weight.slices) {
    std::vector<float> row(static_cast<size_t>(out.weight.cols));
    for (int64_t r = 0; r < out.weight.rows; ++r) {
      decode_row(out.weight.type, slice + row_bytes(out.weight.type, out.weight.cols) * static_cast<size_t>(r),
                 row.data(), out.weight.cols);
      out.values.insert(out.values.end(), row.begin(), row.end());
    }
  }
  return out;
}

/// Every module of a folder; returns the type of each.
std::map<std::string, TensorType> expect_values(const fs::path& folder, double tolerance) {
  std::map<std::string, TensorType> types;
  auto expected = safetensors::File::open(folder / "expected.safetensors");
  EXPECT_TRUE(expected.has_value());
  for (const safetensors::TensorInfo& tensor : expected->tensors()) {
    const auto loaded = load(folder, tensor.name, tensor.shape);
    EXPECT_TRUE(loaded.has_value()) << folder << " " << tensor.name << ": " << loaded.error().message;
    if (!loaded) continue;
    types[tensor.name] = loaded->weight.type;
    std::vector<float> values(tensor.bytes / sizeof(float));
    std::memcpy(values.data(), tensor.data, tensor.bytes);
    EXPECT_EQ(values.size(), loaded->values.size());
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::fabs(value));
    size_t wrong = 0;
    for (size_t i = 0; i < values.size(); ++i)
      wrong += std::fabs(values[i] - loaded->values[i]) <= tolerance * largest ? 0 : 1;
    EXPECT_EQ(wrong, 0U) << folder << " " << tensor.name << " of " << values.size();
  }
  return types;
}

TEST(PackedWeights, IntegersWithZeroPointsAreExact) {
  const std::map<std::string, TensorType> folders = {
      {"gptq4_sym_gptq", TensorType::q4_0},
      {"gptq4_asym_gptq", TensorType::q5_0},
      {"gptq4_asym_gptq_v2", TensorType::q5_0},
      {"gptq8_sym_gptq", TensorType::q8_0},
      {"gptq8_asym_gptq_v2", TensorType::affine8},
      {"gptq3_sym_gptq", TensorType::q4_0},
      {"gptq2_asym_gptq", TensorType::q4_0},
      {"awq", TensorType::q5_0},
      {"compressed4_sym", TensorType::q4_0},
      {"compressed4_asym", TensorType::q5_0},
      {"compressed8_sym", TensorType::q8_0},
      {"compressed8_asym", TensorType::affine8},
      {"compressed4_sym_channel", TensorType::q4_0},
      {"fp8", TensorType::fp8_e4m3},
      {"gptq4_asym_gptq_order", TensorType::f32},
      {"gptq8_sym_gptq_v2_order", TensorType::f32},
      {"compressed4_asym_order", TensorType::f32},
      {"compressed_fp8_block", TensorType::fp8_e4m3},
      {"compressed_fp8_channel", TensorType::fp8_e4m3},
  };
  for (const auto& [name, type] : folders) {
    const auto types = expect_values(kFixtures / name, 0);
    ASSERT_EQ(types.size(), 1U) << name;
    EXPECT_EQ(types.at("w"), type) << name;
  }
}

TEST(PackedWeights, MlxModulesAreThoseOfMlx) {
  // mlx multiplies and adds in another order of rounding than one fma.
  const auto types = expect_values(kFixtures / "mlx", 2e-7);
  EXPECT_EQ(types.size(), 20U);
  EXPECT_EQ(types.at("m.b4g32"), TensorType::q4_1);
  EXPECT_EQ(types.at("m.b4g64"), TensorType::q4_1);
  EXPECT_EQ(types.at("m.b5g32"), TensorType::q5_1);
  EXPECT_EQ(types.at("m.b3g64"), TensorType::q4_1);
  EXPECT_EQ(types.at("m.b8g64"), TensorType::affine8);
  EXPECT_EQ(types.at("m.b4g128"), TensorType::affine8);  // f32 scales that f16 cannot hold
  EXPECT_EQ(types.at("m.fp4"), TensorType::mxfp4);
  EXPECT_EQ(types.at("m.stacked"), TensorType::q4_1);
}

std::vector<float> logits_of(Backend& backend, const Model& model, int32_t rows) {
  EXPECT_TRUE(backend.allocate_cache(TensorType::f16, 1).has_value());
  const std::vector<int32_t> pages{0};
  Batch batch;
  for (int32_t i = 0; i < rows; ++i) {
    batch.tokens.push_back(i * 7 % model.program().vocabulary);
    batch.positions.push_back(i);
    batch.sampled_rows.push_back(i);
  }
  batch.sequences.push_back({0, rows, 0, pages});
  std::vector<float> logits(static_cast<size_t>(rows) * static_cast<size_t>(model.program().vocabulary));
  EXPECT_TRUE(backend.run(batch, logits).has_value());
  return logits;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

/// The golden model qwen3_moe as another checkpoint: the same bits on every instruction set as from the reference, and
/// near what the original gives.
void expect_runs(const std::string& folder, double least, double most) {
  auto model = Model::load(kFixtures / folder, 64);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  auto original = Model::load(fs::path(COHORT_SOURCE_DIR) / "tests/golden/models/qwen3_moe", 64);
  ASSERT_TRUE(original.has_value()) << original.error().message;
  auto reference = make_reference_backend((*model)->program(), {2, ActivationMode::canonical});
  const auto expected = logits_of(*reference, **model, 20);
  for (const Isa isa : available_isas()) {
    auto cpu = make_cpu_backend((*model)->program(), {.isa = isa, .threads = 2});
    ASSERT_TRUE(cpu.has_value()) << cpu.error().message;
    const auto fast = logits_of(**cpu, **model, 20);
    EXPECT_EQ(std::memcmp(expected.data(), fast.data(), expected.size() * sizeof(float)), 0) << isa_name(isa);
  }
  auto unquantised = make_reference_backend((*original)->program(), {2, ActivationMode::canonical});
  const double difference = relative_difference(expected, logits_of(*unquantised, **original, 20));
  EXPECT_GT(difference, least);
  EXPECT_LT(difference, most);
}

// A few bits of random weights are far from them, but a module in another's place would be further (1.4).
TEST(PackedWeights, AnMlxFolderRuns) {
  expect_runs("mlx_qwen3_moe", 0.001, 0.7);
}

TEST(PackedWeights, AnFp8FolderRuns) {
  expect_runs("fp8_qwen3_moe", 0.001, 0.2);
}

TEST(PackedWeights, AGptqFolderWithActivationOrderRuns) {
  expect_runs("gptq_order_qwen3_moe", 0.001, 0.7);
}

class BadFolderTest : public ::testing::Test {
 protected:
  /// The message of loading module w of a fixture after its config was edited.
  std::string message(const std::string& name, const std::function<void(nlohmann::json&)>& edit) {
    fs::copy(kFixtures / name, folder_.path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    std::ifstream in(kFixtures / name / "config.json");
    nlohmann::json config = nlohmann::json::parse(in);
    edit(config);
    folder_.write("config.json", config.dump());
    const auto loaded = load(folder_.path(), "w", {32, 256});
    return loaded ? std::string() : loaded.error().message;
  }
  /// The message of loading the module "w" of an FP8 folder with these tensors: 3 rows of 64 codes, and its scales.
  std::string fp8_message(const std::string& scales, const std::string& dtype, std::vector<int64_t> shape, float scale,
                          int64_t cols = 64) {
    folder_.write("config.json", R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 32]}})");
    const auto codes = static_cast<size_t>(3 * cols), bytes = 4 * static_cast<size_t>(4);
    nlohmann::json header;
    header["w.weight"] = {{"dtype", "F8_E4M3"}, {"shape", {3, cols}}, {"data_offsets", {0, codes}}};
    header[scales] = {{"dtype", dtype}, {"shape", std::move(shape)}, {"data_offsets", {codes, codes + bytes}}};
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
    file += text + std::string(codes, 'x');
    for (int i = 0; i < 4; ++i) {
      const float value = i == 2 ? scale : 1.0F;
      file.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    folder_.write("model.safetensors", file);
    const auto loaded = load(folder_.path(), "w", {3, cols});
    return loaded ? std::string() : loaded.error().message;
  }
  static ::testing::AssertionResult contains(const std::string& text, const char* part) {
    if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "'" << text << "' does not contain '" << part << "'";
  }
  TestFolder folder_;
};

TEST_F(BadFolderTest, ErrorsNameWhatIsWrong) {
  const char* key = "quantization_config";
  EXPECT_TRUE(contains(message("awq", [&](auto& c) { c[key]["group_size"] = 128; }), "[2, 32]"));
  EXPECT_TRUE(contains(message("awq", [&](auto& c) { c[key]["group_size"] = 96; }), "no whole number of groups of 96"));
  EXPECT_TRUE(contains(message("awq", [&](auto& c) { c[key]["group_size"] = 16; }), "multiples of 32"));
  EXPECT_TRUE(contains(message("awq", [&](auto& c) { c[key]["version"] = "marlin"; }), "marlin"));
  EXPECT_TRUE(contains(message("awq", [&](auto& c) { c[key]["quant_method"] = "hqq"; }), "'hqq' is not known"));
  EXPECT_TRUE(contains(message("awq",
                               [&](auto& c) {
                                 c["quantization"] = {{"bits", 4}, {"group_size", 64}};
                               }),
                       "differ"));
  EXPECT_TRUE(contains(message("gptq4_sym_gptq", [&](auto& c) { c[key]["bits"] = 7; }), "7 bits"));
  EXPECT_TRUE(contains(message("gptq4_sym_gptq", [&](auto& c) { c[key]["bits"] = 8; }), "[64, 32]"));
  EXPECT_TRUE(contains(message("gptq4_sym_gptq", [&](auto& c) { c[key]["group_size"] = 128; }), "[2, 32]"));
  EXPECT_TRUE(contains(message("gptq4_asym_gptq_order", [&](auto& c) { c[key]["group_size"] = 128; }), "[2, 32]"));
  EXPECT_TRUE(contains(message("gptq4_sym_gptq", [&](auto& c) { c[key]["group_size"] = 0; }), "groups of 0 values"));
  EXPECT_TRUE(contains(message("gptq4_sym_gptq", [&](auto& c) { c[key]["group_size"] = -2; }), "groups of -2 values"));
  EXPECT_TRUE(contains(message("compressed4_sym", [&](auto& c) { c[key]["format"] = "marlin-24"; }), "marlin-24"));
  const auto claim_symmetry = [&](auto& c) { c[key]["config_groups"]["group_0"]["weights"]["symmetric"] = true; };
  EXPECT_TRUE(contains(message("compressed4_asym", claim_symmetry), "symmetric, but 'w' has zero points"));
  EXPECT_TRUE(contains(message("mlx", [](auto& c) { c["quantization"]["model.w"] = "x"; }), "'model.w' is string"));
  EXPECT_TRUE(contains(message("fp8", [&](auto& c) { c[key].erase("weight_block_size"); }), "weight_block_size"));
  EXPECT_TRUE(contains(message("fp8", [&](auto& c) { c[key]["weight_block_size"] = {64, 128}; }), "64 x 128"));
}

TEST_F(BadFolderTest, Fp8ErrorsNameTensorValueAndFix) {
  const char* scales = "w.weight_scale_inv";
  EXPECT_EQ(fp8_message(scales, "F32", {2, 2}, 1), "");
  EXPECT_TRUE(contains(fp8_message("v.weight_scale_inv", "F32", {2, 2}, 1), "no tensor 'w.weight_scale_inv'"));
  EXPECT_TRUE(contains(fp8_message(scales, "F32", {4, 1}, 1), "F32 scales [4, 1]"));
  EXPECT_TRUE(contains(fp8_message(scales, "F32", {4, 1}, 1), "for each 2 x 32 values, which makes [2, 2]: correct"));
  EXPECT_TRUE(contains(fp8_message(scales, "I32", {2, 2}, 1), "I32 scales [2, 2]"));
  EXPECT_TRUE(contains(fp8_message(scales, "F32", {2, 2}, std::numeric_limits<float>::infinity()),
                       "'w.weight_scale_inv' holds inf at [1, 0]; scales are finite"));
  EXPECT_TRUE(contains(fp8_message(scales, "F32", {2, 2}, 1, 48), "rows of 48 FP8 values; multiples of 32"));
  const char* key = "quantization_config";
  const auto blocks = [&](nlohmann::json value) {
    return message("fp8", [&](auto& c) { c[key]["weight_block_size"] = value; });
  };
  EXPECT_TRUE(contains(blocks({128, 48}), "blocks of 128 x 48; 1 to 1048576 rows and a multiple of 32 columns"));
  EXPECT_TRUE(contains(blocks({0, 128}), "blocks of 0 x 128"));
  EXPECT_TRUE(contains(blocks({128}), "weight_block_size must hold two numbers, such as [128, 128]; it is [128]"));
  EXPECT_TRUE(contains(message("compressed_fp8_block",
                               [&](auto& c) { c[key]["config_groups"]["group_0"]["weights"]["strategy"] = "tensor"; }),
                       "with strategy tensor; symmetric, 8 bits, float, and block or channel"));
  EXPECT_TRUE(
      contains(message("compressed_fp8_block",
                       [&](auto& c) { c[key]["config_groups"]["group_0"]["weights"].erase("block_structure"); }),
               "block_structure must hold two numbers, such as [128, 128]; it is missing"));
}

}  // namespace
}  // namespace cohort
