// The model families this build knows. One short file per family builds its program.
#pragma once

#include <string>
#include <string_view>

#include "models/config.h"
#include "models/program.h"
#include "models/weight_store.h"

namespace cohort {

struct Family {
  std::string_view architecture;      // GGUF's general.architecture
  std::string_view huggingface_type;  // config.json's model_type
  bool moe;
  Expected<Program> (*build)(const ModelConfig&, const RopeTables&, WeightStore&);
};

const Family* find_family(std::string_view architecture);
const Family* find_family_by_huggingface(std::string_view model_type);
/// "qwen3moe, qwen3, ..."
std::string supported_architectures();
std::string supported_huggingface_types();

Expected<Program> build_qwen3moe(const ModelConfig& config, const RopeTables& rope, WeightStore& weights);
Expected<Program> build_qwen3(const ModelConfig& config, const RopeTables& rope, WeightStore& weights);
Expected<Program> build_qwen2(const ModelConfig& config, const RopeTables& rope, WeightStore& weights);
Expected<Program> build_llama(const ModelConfig& config, const RopeTables& rope, WeightStore& weights);  // and Mixtral
Expected<Program> build_diffusion_gemma(const ModelConfig& config, const RopeTables& rope, WeightStore& weights);
Expected<Program> build_gpt_oss(const ModelConfig& config, const RopeTables& rope, WeightStore& weights);
Expected<Program> build_gemma4(const ModelConfig& config, const RopeTables& rope, WeightStore& weights);

}  // namespace cohort
