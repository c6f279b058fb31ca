#include "convert/convert.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>

#include "base/file.h"
#include "base/json.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "convert/encode.h"
#include "convert/model_card.h"
#include "convert/model_metadata.h"
#include "convert/plan.h"
#include "convert/tokenizer_metadata.h"
#include "formats/huggingface/huggingface.h"
#include "formats/safetensors/safetensors.h"
#include "models/families.h"
#include "models/gemma_config.h"
#include "models/huggingface_names.h"

namespace cohort {
namespace {

using convert_detail::Plan;
using convert_detail::PlannedTensor;
namespace fs = std::filesystem;

/// Weights that are packed integers beside scales are no plain matrices, whatever their names. MXFP4 experts stay what
/// they are.
Expected<void> refuse_quantised(const nlohmann::json& config) {
  for (const char* key : {"quantization_config", "quantization"}) {
    auto found = config.find(key);
    if (found == config.end() || found->is_null()) continue;
    if (found->is_object() && found->value("quant_method", nlohmann::json()) == "mxfp4") continue;
    std::string method = found->is_object() && found->contains("quant_method") ? found->at("quant_method").dump() : key;
    return fail(
        ErrorCode::unsupported,
        "config.json: the checkpoint is quantised already ({}); convert the original F32, F16 or BF16 checkpoint",
        method);
  }
  return {};
}

/// Refuses what a GGUF file of this architecture cannot say.
Expected<void> check_expressible(const ModelConfig& config) {
  if (config.experts > 0 && !config.renormalise) {
    return fail(ErrorCode::unsupported,
                "config.json: norm_topk_prob is false; GGUF programs renormalise the expert weights of {}, so that the "
                "file would "
                "compute something else. Run the folder itself instead",
                config.architecture);
  }
  return {};
}

/// Does the head reuse the embedding? config.json decides; a missing head without it is an error.
Expected<bool> is_tied(const nlohmann::json& root, const ModelConfig& model, const WeightStore& store) {
  JsonObject config(root, "config.json");
  // The class default of Gemma's configurations is true.
  COHORT_ASSIGN(bool tied, config.get_bool("tie_word_embeddings", is_gemma(model.architecture)));
  if (!tied && !store.has("output.weight")) {
    return fail(ErrorCode::corrupt,
                "the folder has no tensor 'lm_head.weight', and config.json does not tie it to the embedding "
                "(tie_word_embeddings)");
  }
  return tied;
}

/// Tensors that older checkpoints carry along although they can be computed.
bool is_derived(const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq");
}

Expected<void> check_unused(const WeightStore& store, bool tied, const ConvertOptions& options, ConvertReport& report) {
  std::vector<std::string> left = store.unused();
  std::erase_if(left, [&](const std::string& name) { return is_derived(name) || (tied && name == "lm_head.weight"); });
  const auto others = std::erase_if(left, is_other_than_text);
  if (others > 0) {
    report.notes.push_back(
        fmt::format("left out {} tensors for images and sound; the file holds the text model", others));
  }
  if (left.empty()) return {};
  std::string some;
  for (size_t i = 0; i < std::min<size_t>(left.size(), 3); ++i) some += (i == 0 ? "'" : ", '") + left[i] + "'";
  if (left.size() > 3) some += ", ...";
  if (!options.ignore_unused) {
    return fail(ErrorCode::unsupported,
                "{} tensors of the folder have no place in this architecture: {}; is it another model than config.json "
                "says? Leave "
                "them out with --ignore-unused",
                left.size(), some);
  }
  report.notes.push_back(fmt::format("left out {} tensors that the model does not use: {}", left.size(), some));
  return {};
}

Expected<TensorType> chosen_type(const ConvertOptions& options, const WeightStore& store) {
  const auto& types = convert_types();
  if (!options.type) return store.matrices().front().type;
  if (std::find(types.begin(), types.end(), *options.type) != types.end()) return *options.type;
  return fail(ErrorCode::invalid_argument, "type {} cannot be converted to; f32, f16, bf16, q8_0, q4_0 and q4_k can",
              type_info(*options.type).name);
}

Expected<void> check_room(const fs::path& output, uint64_t needed) {
  std::error_code error;
  if (fs::is_directory(output, error)) {
    return fail(ErrorCode::invalid_argument, "'{}' is a folder; name the file to write", output.string());
  }
  fs::path folder = output.has_parent_path() ? output.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, error))
    return fail(ErrorCode::not_found, "the folder '{}' does not exist", folder.string());
  auto space = fs::space(folder, error);
  if (!error && space.available < needed) {
    return fail(ErrorCode::capacity, "'{}' needs {} bytes, but only {} are free in '{}'", output.string(), needed,
                space.available, folder.string());
  }
  return {};
}

std::string display_name(const fs::path& folder, const ConvertOptions& options) {
  if (!options.name.empty()) return options.name;
  std::error_code error;
  return fs::weakly_canonical(folder, error).filename().string();
}

Expected<void> check_encoders(const Plan& plan) {
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.type != tensor.source_type && !has_encoder(tensor.type)) {
      return fail(ErrorCode::unsupported,
                  "tensor '{}' should become {}, for which this build has no encoder; choose another --type",
                  tensor.name, type_info(tensor.type).name);
    }
  }
  return {};
}

Expected<void> add_texts(const ConvertOptions& options, gguf::Metadata& metadata) {
  for (const auto& [key, text] : options.set) {
    if (!key.starts_with("general.") || metadata.contains(key)) {
      return fail(ErrorCode::invalid_argument, "--set {}: only new keys that begin with 'general.' can be set", key);
    }
    COHORT_TRY(metadata.add(key, gguf::Value(text)));
  }
  return {};
}

/// The model card's keys, where --set does not say otherwise.
Expected<void> add_card(const fs::path& folder, gguf::Metadata& metadata) {
  constexpr size_t kMaxCardBytes = size_t{4} << 20;
  std::error_code error;
  if (!fs::is_regular_file(folder / "README.md", error)) return {};
  COHORT_ASSIGN(const std::string text, read_text_file(folder / "README.md", kMaxCardBytes));
  return convert_detail::add_model_card(convert_detail::parse_model_card(text), metadata);
}

void describe(const Plan& plan, ConvertReport& report) {
  report.tensors = plan.tensors.size();
  for (const PlannedTensor& tensor : plan.tensors) {
    ++report.types[tensor.type];
    report.parameters += static_cast<uint64_t>(tensor.total_rows() * tensor.cols);
  }
  report.notes.insert(report.notes.end(), plan.notes.begin(), plan.notes.end());
}

/// The result may lie in the checkpoint's folder, but not in the place of one of its files.
Expected<void> check_output(const fs::path& folder, const fs::path& output) {
  if (!output.has_filename())
    return fail(ErrorCode::invalid_argument, "the output file (-o) has no name: '{}'", output.string());
  std::error_code ignored;
  const bool inside = fs::equivalent(output.has_parent_path() ? output.parent_path() : fs::path("."), folder, ignored);
  if (inside && fs::exists(output, ignored) && output.extension() != ".gguf") {
    return fail(ErrorCode::invalid_argument,
                "'{}' is a file of the checkpoint; choose another output (-o), such as model.gguf", output.string());
  }
  return {};
}

}  // namespace

const std::vector<TensorType>& convert_types() {
  static const std::vector<TensorType> types = {TensorType::f32,  TensorType::f16,  TensorType::bf16,
                                                TensorType::q8_0, TensorType::q4_0, TensorType::q4_k};
  return types;
}

Expected<ConvertReport> convert(const fs::path& folder, const fs::path& output, const ConvertOptions& options) {
  ConvertReport report;
  COHORT_TRY(check_output(folder, output));
  COHORT_ASSIGN(auto files, huggingface::Folder::open(folder));
  COHORT_TRY(refuse_quantised(files.config()));
  COHORT_ASSIGN(ModelConfig config, config_from_huggingface(files.config()));
  COHORT_TRY(check_expressible(config));
  COHORT_ASSIGN(auto weights, safetensors::Folder::open(folder));
  COHORT_ASSIGN(const auto quantisation, huggingface::read_quantisation(files.config()));
  auto store = make_safetensors_store(weights, config.architecture, quantisation);
  // Building the program asks for every weight and so checks presence, shapes and types.
  COHORT_TRY(find_family(config.architecture)->build(config, make_rope_tables(config), *store));
  COHORT_ASSIGN(bool tied, is_tied(files.config(), config, *store));
  COHORT_TRY(check_unused(*store, tied, options, report));
  COHORT_ASSIGN(TensorType type, chosen_type(options, *store));
  Plan plan = convert_detail::make_plan(*store, config, type, tied);
  COHORT_TRY(check_encoders(plan));
  describe(plan, report);

  gguf::Metadata metadata;
  COHORT_TRY(convert_detail::add_model_metadata(config, display_name(folder, options), type, files.generation_config(),
                                                metadata, report.notes));
  COHORT_TRY(add_texts(options, metadata));
  COHORT_TRY(add_card(folder, metadata));
  COHORT_TRY(convert_detail::add_tokenizer_metadata(files, config, options.pre, metadata, report.notes));
  COHORT_TRY(check_room(output, 0));
  COHORT_ASSIGN(auto writer, gguf::Writer::create(output));
  for (const auto& [key, value] : metadata.entries()) COHORT_TRY(writer.metadata().add(key, value));
  for (const PlannedTensor& tensor : plan.tensors)
    COHORT_TRY(writer.add_tensor(tensor.name, tensor.type, tensor.shape));
  report.bytes = writer.total_bytes();
  COHORT_TRY(check_room(output, report.bytes));
  ThreadTeam team(std::max(1, options.jobs));
  COHORT_TRY(writer.begin_data());
  COHORT_TRY(convert_detail::write_tensors(plan, writer, team, options));
  COHORT_TRY(writer.commit());
  return report;
}

}  // namespace cohort
