// Random tiny models of every family, and Libris when its folder is given, against Hugging Face transformers.
#include <cstdlib>

#include "golden.h"
#include "kernels/reference/backend.h"

namespace cohort::golden {
namespace {

namespace fs = std::filesystem;

struct Errors {
  double relative = 0;
  double largest = 0;
};

Errors worst(Backend& backend, int32_t vocabulary, const std::vector<Prompt>& prompts) {
  Errors errors;
  for (const Prompt& prompt : prompts) {
    const auto logits = all_logits(backend, vocabulary, prompt.ids, 512);
    errors.relative = std::max(errors.relative, relative_error(logits, prompt.logits));
    errors.largest = std::max(errors.largest, largest_difference(logits, prompt.logits));
  }
  return errors;
}

std::unique_ptr<Backend> backend_for(const Model& model, ActivationMode mode, TensorType kv) {
  auto backend = make_reference_backend(model.program(), {2, mode});
  EXPECT_TRUE(backend->allocate_cache(kv, 8).has_value());
  return backend;
}

// float: the validation mode, KV in f32. served: what float weights get in service (f32 activations, KV in f16). int8:
// rule 2 forced upon float weights; its error is that of eight bits (docs/perf/libris-activation-error.csv), so the
// limit says "no bug", not "close".
struct Limits {
  double exact = 1e-5, served = 2e-3, int8 = 0.1;
};

void expect_golden(const fs::path& model_path, const fs::path& golden, const Limits& limits) {
  auto model = Model::load(model_path, 256);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const int32_t vocabulary = (*model)->program().vocabulary;
  const auto prompts = load_prompts(golden);

  struct Mode {
    const char* name;
    ActivationMode activations;
    TensorType kv;
    double limit;
  };
  for (const Mode& mode : {Mode{"float", ActivationMode::float_all, TensorType::f32, limits.exact},
                           Mode{"served", ActivationMode::canonical, TensorType::f16, limits.served},
                           Mode{"int8", ActivationMode::int8_all, TensorType::f16, limits.int8}}) {
    auto backend = backend_for(**model, mode.activations, mode.kv);
    const Errors errors = worst(*backend, vocabulary, prompts);
    EXPECT_LT(errors.relative, mode.limit) << mode.name;
    int compared = 0, total = 0;
    for (const Prompt& prompt : prompts) {
      // Two candidates may each move by the largest difference.
      const int steps = equal_greedy_steps(*backend, vocabulary, prompt, 2 * errors.largest);
      EXPECT_GE(steps, 0) << mode.name;
      compared += steps;
      total += static_cast<int>(prompt.margins.size());
    }
    if (mode.activations == ActivationMode::float_all) {
      EXPECT_GT(compared, total / 2) << "the comparison ended too early to mean anything";
    }
    printf("%-6s relative L2 %.3g, largest %.3g, greedy: %d of %d steps equal, none different\n", mode.name,
           errors.relative, errors.largest, compared, total);
  }
}

std::vector<fs::path> golden_models() {
  std::vector<fs::path> paths;
  const fs::path root = fs::path(COHORT_SOURCE_DIR) / "tests/golden/models";
  if (!fs::is_directory(root)) return paths;
  for (const auto& entry : fs::directory_iterator(root)) {
    auto config = huggingface::Folder::open(entry.path());
    if (!config) continue;
    // Models of block diffusion have goldens of another kind (diffusion_test.cpp).
    const auto known = config_from_huggingface(config->config());
    if (known && known->diffusion.canvas_length == 0) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

class Families : public ::testing::TestWithParam<fs::path> {};

TEST_P(Families, FolderGivesTransformersLogits) {
  // Quantised weights are served with activations of eight bits.
  Limits limits;
  if (GetParam().filename().string().ends_with("_mxfp4")) limits.served = limits.int8;
  expect_golden(GetParam(), GetParam(), limits);
}

TEST_P(Families, GgufGivesTransformersLogits) {
  // Written by the independent gguf package (tools/make_golden_gguf.py), some in bf16 like the folders they come from.
  const std::string name = GetParam().filename().string();
  bool found = false;
  for (const auto& entry : fs::directory_iterator(fs::path(COHORT_SOURCE_DIR) / "tests/golden/gguf")) {
    const std::string stem = entry.path().stem().string();
    if (stem.substr(0, stem.rfind('-')) != name) continue;
    found = true;
    expect_golden(entry.path(), GetParam(), {});
  }
  if (!found)
    GTEST_SKIP() << "no GGUF of " << name << " (the format has no key for what it does, or it equals another one)";
}

INSTANTIATE_TEST_SUITE_P(Golden, Families, ::testing::ValuesIn(golden_models()),
                         [](const auto& info) { return info.param.filename().string(); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Families);

// The full-precision checkpoint is not part of the repository: COHORT_LIBRIS names its folder, COHORT_LIBRIS_GOLDEN
// that of its goldens.
TEST(Libris, FolderGivesTransformersLogits) {
  const char* folder = std::getenv("COHORT_LIBRIS");
  const char* golden = std::getenv("COHORT_LIBRIS_GOLDEN");
  if (folder == nullptr || golden == nullptr) GTEST_SKIP() << "set COHORT_LIBRIS and COHORT_LIBRIS_GOLDEN";
  expect_golden(folder, golden, {1e-5, 2e-3, 3e-2});
}

}  // namespace
}  // namespace cohort::golden
