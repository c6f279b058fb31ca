#include "models/model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/result.h"
#include "models/diffusion_config.h"
#include "models/families.h"
#include "models/gemma_config.h"
#include "models/huggingface_names.h"

namespace cohort {
namespace {

constexpr const char* kRopeFactors = "rope_freqs.weight";
/// Files say with a divisor of 1e30 that a pair does not rotate.
constexpr double kStandsStill = 1e20;

/// Llama 3.1 and Gemma files carry divisors for the rotary frequencies instead of a rule. `needed`: nothing else says
/// which pairs rotate.
Expected<void> apply_rope_factors(WeightStore& store, bool needed, RopeTable& table) {
  if (!store.has(kRopeFactors)) {
    if (!needed) return {};
    return fail(
        ErrorCode::corrupt,
        "the file has no tensor '{}', which says how pairs rotate in the layers that see everything: convert the "
        "model again",
        kRopeFactors);
  }
  const VectorWeight* factors = store.vector(kRopeFactors, static_cast<int64_t>(table.frequencies.size()));
  if (store.error()) return tl::unexpected<Error>(*store.error());
  for (size_t i = 0; i < table.frequencies.size(); ++i) {
    const auto factor = static_cast<double>(factors->values[i]);
    if (!(factor > 0)) {
      return fail(ErrorCode::corrupt,
                  "value {} of tensor '{}' is {:g}; a divisor of a frequency must be above 0: convert the model again",
                  i, kRopeFactors, factor);
    }
    table.frequencies[i] = factor >= kStandsStill ? 0.0 : table.frequencies[i] / factor;
  }
  return {};
}

bool has_full_layers(const ModelConfig& config) {
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    if (!config.slides(layer)) return true;
  }
  return false;
}

}  // namespace

Expected<void> Model::open(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    COHORT_ASSIGN(folder_, huggingface::Folder::open(path));
    COHORT_ASSIGN(config_, config_from_huggingface(folder_->config()));
    if (config_.diffusion.canvas_length > 0 && folder_->generation_config() != nullptr)
      COHORT_TRY(read_diffusion_from_generation_config(*folder_->generation_config(), config_.diffusion));
    COHORT_ASSIGN(safetensors_, safetensors::Folder::open(path));
    COHORT_ASSIGN(const auto quantisation, huggingface::read_quantisation(folder_->config()));
    store_ = make_safetensors_store(*safetensors_, config_.architecture, quantisation);
  } else {
    COHORT_ASSIGN(gguf_, gguf::File::open(path));
    COHORT_ASSIGN(config_, config_from_gguf(gguf_->metadata()));
    store_ = make_gguf_store(*gguf_);
  }
  if (config_.name.empty())
    config_.name = path.has_stem() ? path.stem().string() : path.parent_path().filename().string();
  return {};
}

Expected<std::unique_ptr<Model>> Model::load(const std::filesystem::path& path, int32_t context) {
  std::unique_ptr<Model> model(new Model);
  model->path_ = path;
  COHORT_TRY(model->open(path));
  if (context < 0 || context > model->config_.context) {
    return fail(ErrorCode::invalid_argument,
                "a context of {} was asked for; this model was made for 1 to {} positions (-c)", context,
                model->config_.context);
  }
  model->context_ = context > 0 ? context : model->config_.context;
  model->rope_ = make_rope_tables(model->config_);
  const bool files_divisors = model->gguf_ && is_gemma(model->config_.architecture) && has_full_layers(model->config_);
  COHORT_TRY(apply_rope_factors(*model->store_, files_divisors, model->rope_.full));
  model->rope_.full.fill(model->context_);
  model->rope_.sliding.fill(model->context_);
  const Family* family = find_family(model->config_.architecture);
  COHORT_ASSIGN(model->program_, family->build(model->config_, model->rope_, *model->store_));
  const std::vector<std::string> unused = model->store_->unused();
  if (const auto others = std::ranges::count_if(unused, is_other_than_text); others > 0)
    log::info("{}: {} tensors for images and sound are not used; this is the text model", path.string(), others);
  return model;
}

std::string Model::longer_context() const {
  if (context_ >= config().context) return "the model was made for no more positions";
  return fmt::format("raise -c (the model was made for {})", config().context);
}

}  // namespace cohort
