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

void expect_golden(const fs::path& model_path, const fs::path& golden, double float_limit, double int8_limit) {
  auto model = Model::load(model_path, 256);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const int32_t vocabulary = (*model)->program().vocabulary;
  const auto prompts = load_prompts(golden);

  auto exact = backend_for(**model, ActivationMode::float_all, TensorType::f32);
  const Errors exact_errors = worst(*exact, vocabulary, prompts);
  printf("float activations: relative L2 %.3g, largest %.3g\n", exact_errors.relative, exact_errors.largest);
  EXPECT_LT(exact_errors.relative, float_limit);

  auto rounded = backend_for(**model, ActivationMode::int8_all, TensorType::f16);
  const Errors int8_errors = worst(*rounded, vocabulary, prompts);
  printf("int8 activations:  relative L2 %.3g, largest %.3g\n", int8_errors.relative, int8_errors.largest);
  EXPECT_LT(int8_errors.relative, int8_limit);

  int compared = 0, total = 0;
  for (const Prompt& prompt : prompts) {
    const int steps = equal_greedy_steps(*exact, vocabulary, prompt, 2 * exact_errors.largest);
    EXPECT_GE(steps, 0);
    compared += steps;
    total += static_cast<int>(prompt.margins.size());
    EXPECT_GE(equal_greedy_steps(*rounded, vocabulary, prompt, 2 * int8_errors.largest), 0);
  }
  printf("greedy, float activations: %d of %d steps equal\n", compared, total);
  EXPECT_GT(compared, 0);
}

std::vector<fs::path> golden_models() {
  std::vector<fs::path> paths;
  const fs::path root = fs::path(COHORT_SOURCE_DIR) / "tests/golden/models";
  if (!fs::is_directory(root)) return paths;
  for (const auto& entry : fs::directory_iterator(root)) {
    auto config = huggingface::Folder::open(entry.path());
    if (config && config_from_huggingface(config->config())) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

class Families : public ::testing::TestWithParam<fs::path> {};

TEST_P(Families, FolderGivesTransformersLogits) {
  expect_golden(GetParam(), GetParam(), 1e-5, 0.1);
}

TEST_P(Families, GgufGivesTransformersLogits) {
  for (const auto& entry : fs::directory_iterator(GetParam())) {
    if (entry.path().extension() == ".gguf") expect_golden(entry.path(), GetParam(), 1e-5, 0.1);
  }
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
  expect_golden(folder, golden, 1e-5, 2e-3);
}

}  // namespace
}  // namespace cohort::golden
