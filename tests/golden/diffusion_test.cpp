// Block diffusion against Hugging Face transformers (tools/golden_diffusion.py): the decoder's logits of given
// canvases, with and without what the step before thought of them, prompts longer than the window, two canvases after
// each other; and the entropies and accepted positions of the sampler.
#include "engine/canvas.h"
#include "golden.h"
#include "kernels/cpu/backend.h"
#include "kernels/reference/backend.h"

namespace cohort::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int32_t kPages = 8;

const fs::path& root() {
  static const fs::path path = fs::path(COHORT_SOURCE_DIR) / "tests/golden";
  return path;
}

json entries() {
  std::ifstream file(root() / "models/diffusion_gemma/golden.json");
  return json::parse(file);
}

std::vector<int32_t> pages() {
  std::vector<int32_t> all(kPages);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Rows at `first` on the first pages; logits of all of a canvas, of none that are read.
std::vector<float> run(Backend& backend, const std::vector<int32_t>& tokens, int32_t first, bool canvas,
                       std::span<const Mixture> mixtures, int32_t vocabulary) {
  const std::vector<int32_t> own = pages();
  Batch batch;
  batch.tokens = tokens;
  for (int32_t r = 0; r < batch.rows(); ++r) {
    batch.positions.push_back(first + r);
    if (canvas) batch.sampled_rows.push_back(r);
  }
  batch.sequences.push_back({0, batch.rows(), first, own, canvas, mixtures});
  std::vector<float> logits(batch.sampled_rows.size() * static_cast<size_t>(vocabulary));
  const auto stats = backend.run(batch, logits);
  EXPECT_TRUE(stats) << stats.error().message;
  return logits;
}

struct Step {
  std::string name;  // "0.1.2": prompt, block, step
  json golden;
  float entropy_bound;
  std::vector<float> logits;
  std::vector<CanvasRow> rows;
};

std::vector<float> golden_logits(const std::string& name) {
  auto tensors = safetensors::File::open(root() / "models/diffusion_gemma/golden_logits.safetensors");
  if (!tensors) throw std::runtime_error(tensors.error().message);
  for (const auto& tensor : tensors->tensors()) {
    if (tensor.name != "logits." + name) continue;
    std::vector<float> out(tensor.bytes / sizeof(float));
    std::memcpy(out.data(), tensor.data, tensor.bytes);
    return out;
  }
  throw std::runtime_error("no logits." + name);
}

/// What the sampler reads from logits [rows, vocabulary].
std::vector<CanvasRow> read_rows(std::vector<float> logits, float temperature, int32_t vocabulary) {
  std::vector<CanvasRow> rows;
  const auto width = static_cast<size_t>(vocabulary);
  for (size_t r = 0; r < logits.size() / width; ++r) {
    auto row = read_canvas_row(std::span(logits).subspan(r * width, width), temperature, 0.5F);
    EXPECT_TRUE(row) << row.error().message;
    rows.push_back(std::move(*row));
  }
  return rows;
}

/// Every step of every block. What the golden's step thought goes into the next one (or what this backend thought:
/// differences grow from step to step, as the little model's logits are far from certain).
std::vector<Step> all_steps(Backend& backend, int32_t vocabulary, bool own_thoughts = false) {
  std::vector<Step> out;
  const json all = entries();
  for (size_t prompt = 0; prompt < all.size(); ++prompt) {
    const auto ids = all[prompt].at("ids").get<std::vector<int32_t>>();
    run(backend, ids, 0, false, {}, vocabulary);
    auto first = static_cast<int32_t>(ids.size());
    for (size_t block = 0; block < all[prompt].at("blocks").size(); ++block) {
      const json& golden = all[prompt].at("blocks")[block];
      std::vector<Mixture> mixtures;
      for (size_t s = 0; s < golden.at("steps").size(); ++s) {
        Step step{std::to_string(prompt) + "." + std::to_string(block) + "." + std::to_string(s),
                  golden.at("steps")[s],
                  all[prompt].at("entropy_bound").get<float>(),
                  {},
                  {}};
        const auto canvas = step.golden.at("canvas").get<std::vector<int32_t>>();
        step.logits = run(backend, canvas, first, true, mixtures, vocabulary);
        const auto temperature = step.golden.at("temperature").get<float>();
        step.rows = read_rows(step.logits, temperature, vocabulary);
        const auto thoughts = own_thoughts ? step.rows : read_rows(golden_logits(step.name), temperature, vocabulary);
        mixtures.clear();
        for (const CanvasRow& row : thoughts) mixtures.push_back(row.mixture);
        out.push_back(std::move(step));
      }
      const auto committed = golden.at("committed").get<std::vector<int32_t>>();
      run(backend, committed, first, false, {}, vocabulary);
      first += static_cast<int32_t>(committed.size());
    }
  }
  return out;
}

class Diffusion : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto loaded = Model::load(root() / GetParam(), 128);
    ASSERT_TRUE(loaded) << loaded.error().message;
    model_ = std::move(*loaded);
    EXPECT_EQ(model_->config().diffusion.canvas_length, 12);
    EXPECT_EQ(model_->config().diffusion.max_steps, 48);
  }
  std::unique_ptr<Backend> reference(ActivationMode mode, TensorType kv) {
    auto backend = make_reference_backend(model_->program(), {2, mode});
    EXPECT_TRUE(backend->allocate_cache(kv, kPages).has_value());
    return backend;
  }
  std::unique_ptr<Model> model_;
};

TEST_P(Diffusion, GivesTransformersLogits) {
  struct Mode {
    ActivationMode activations;
    TensorType kv;
    double limit;
  };
  const int32_t vocabulary = model_->program().vocabulary;
  for (const Mode& mode : {Mode{ActivationMode::float_all, TensorType::f32, 1e-5},
                           Mode{ActivationMode::canonical, TensorType::f16, 2e-3}}) {
    const auto backend = reference(mode.activations, mode.kv);
    size_t conditioned = 0;
    double worst = 0;
    for (const Step& step : all_steps(*backend, vocabulary)) {
      const double error = relative_error(step.logits, golden_logits(step.name));
      EXPECT_LT(error, mode.limit) << step.name;
      worst = std::max(worst, error);
      conditioned += step.name.back() != '0' ? 1 : 0;
    }
    EXPECT_GE(conditioned, 2U);
    printf("relative L2 %.3g\n", worst);
  }
}

TEST_P(Diffusion, SamplerAcceptsWhatTransformersAccepts) {
  const auto backend = reference(ActivationMode::float_all, TensorType::f32);
  for (const Step& step : all_steps(*backend, model_->program().vocabulary)) {
    std::vector<float> entropies;
    std::vector<int32_t> best, accepted;
    for (const CanvasRow& row : step.rows) {
      entropies.push_back(row.entropy);
      best.push_back(row.best);
    }
    const auto expected = step.golden.at("entropy").get<std::vector<float>>();
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(entropies[i], expected[i], 2e-5) << step.name;
    EXPECT_EQ(best, step.golden.at("argmax").get<std::vector<int32_t>>()) << step.name;
    const std::vector<bool> mask = accepted_rows(entropies, step.entropy_bound);
    for (size_t i = 0; i < mask.size(); ++i) {
      if (mask[i]) accepted.push_back(static_cast<int32_t>(i));
    }
    EXPECT_EQ(accepted, step.golden.at("accepted").get<std::vector<int32_t>>()) << step.name;
  }
}

TEST_P(Diffusion, CpuGivesTheReferencesBits) {
  const int32_t vocabulary = model_->program().vocabulary;
  const auto expected = all_steps(*reference(ActivationMode::canonical, TensorType::f16), vocabulary, true);
  for (const Isa isa : available_isas()) {
    CpuOptions options;
    options.isa = isa;
    options.threads = 3;
    auto cpu = make_cpu_backend(model_->program(), options);
    ASSERT_TRUE(cpu) << cpu.error().message;
    ASSERT_TRUE((*cpu)->allocate_cache(TensorType::f16, kPages));
    const auto got = all_steps(**cpu, vocabulary, true);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].logits, expected[i].logits) << isa_name(isa) << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Diffusion,
                         ::testing::Values("models/diffusion_gemma", "gguf/diffusion_gemma-bf16.gguf"),
                         [](const auto& info) { return info.index == 0 ? "folder" : "gguf"; });

}  // namespace
}  // namespace cohort::golden
