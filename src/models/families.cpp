#include "models/families.h"

#include <array>

namespace cohort {
namespace {

// Mixtral is GGUF's "llama" with an expert_count; in Hugging Face it has a model_type of its own.
constexpr std::array kFamilies{
    Family{"qwen3moe", "qwen3_moe", true, build_qwen3moe},
    Family{"qwen3", "qwen3", false, build_qwen3},
    Family{"qwen2", "qwen2", false, build_qwen2},
    Family{"llama", "llama", false, build_llama},
    Family{"llama", "mixtral", true, build_llama},
    Family{"gpt-oss", "gpt_oss", true, build_gpt_oss},
    Family{"gemma4", "gemma4", true, build_gemma4},
    Family{"gemma4", "gemma4_text", true, build_gemma4},
    Family{"diffusion-gemma", "diffusion_gemma", true, build_diffusion_gemma},
};

std::string join(std::string_view Family::*name) {
  std::string out;
  std::string_view last;
  for (const Family& family : kFamilies) {
    if (family.*name == last) continue;
    last = family.*name;
    if (!out.empty()) out += ", ";
    out += last;
  }
  return out;
}

}  // namespace

const Family* find_family(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

const Family* find_family_by_huggingface(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (family.huggingface_type == model_type) return &family;
  }
  return nullptr;
}

std::string supported_architectures() {
  return join(&Family::architecture);
}
std::string supported_huggingface_types() {
  return join(&Family::huggingface_type);
}

}  // namespace cohort
