// The architectures of `cohort synth`: metadata and tensors as llama.cpp's converter names them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"
#include "measure/synth.h"
#include "models/gemma_config.h"
#include "models/gpt_oss_config.h"
#include "models/layer_types.h"

namespace cohort {
namespace {

using gguf::Metadata;
using gguf::StringArray;
using gguf::Value;

/// UTF-8 of a code point below U+0800.
std::string utf8(uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

/// How byte-level BPE spells a byte: printable ones as themselves, the others as U+0100, U+0101, ... in order.
std::string byte_token(uint32_t byte) {
  const auto printable = [](uint32_t b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  if (printable(byte)) return utf8(byte);
  uint32_t unprintable = 0;
  for (uint32_t b = 0; b < byte; ++b) unprintable += printable(b) ? 0 : 1;
  return utf8(256 + unprintable);
}

/// Every byte, a few merges, the control tokens, then unused tokens up to the vocabulary.
Expected<void> add_tokenizer(Metadata& metadata, std::string_view pre, int32_t vocabulary) {
  constexpr int32_t kNormal = 1, kControl = 3, kUnused = 5;
  std::vector<std::string> tokens;
  for (uint32_t byte = 0; byte < 256; ++byte) tokens.push_back(byte_token(byte));
  const std::string space = byte_token(' ');
  StringArray merges;
  for (const auto& [left, right] : {std::pair{space, "t"}, {space, "a"}, {std::string("h"), "e"}, {"i", "n"}}) {
    merges.push_back(left + " " + right);
    tokens.push_back(left + right);
  }
  std::vector<int32_t> types(tokens.size(), kNormal);
  const auto begin = static_cast<uint32_t>(tokens.size());
  for (const char* control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    tokens.emplace_back(control);
    types.push_back(kControl);
  }
  if (vocabulary < static_cast<int32_t>(tokens.size())) {
    return fail(ErrorCode::invalid_argument, "vocabulary {} is too small for a byte-level tokenizer; at least {}",
                vocabulary, tokens.size());
  }
  while (static_cast<int32_t>(tokens.size()) < vocabulary) {
    tokens.push_back(fmt::format("[PAD{}]", tokens.size()));
    types.push_back(kUnused);
  }
  COHORT_TRY(metadata.add("tokenizer.ggml.model", Value(std::string("gpt2"))));
  COHORT_TRY(metadata.add("tokenizer.ggml.pre", Value(std::string(pre))));
  COHORT_TRY(metadata.add("tokenizer.ggml.tokens", Value(StringArray::from(tokens))));
  COHORT_TRY(metadata.add("tokenizer.ggml.token_type", Value(std::move(types))));
  COHORT_TRY(metadata.add("tokenizer.ggml.merges", Value(std::move(merges))));
  COHORT_TRY(metadata.add("tokenizer.ggml.bos_token_id", Value(begin)));
  COHORT_TRY(metadata.add("tokenizer.ggml.eos_token_id", Value(begin + 2)));
  COHORT_TRY(metadata.add("tokenizer.ggml.padding_token_id", Value(begin)));
  return metadata.add("tokenizer.ggml.add_bos_token", Value(false));
}

/// Keys "<architecture>.<key>".
struct Keys {
  Metadata& metadata;
  std::string architecture;
  Expected<void> add(std::string_view key, Value value) {
    return metadata.add(fmt::format("{}.{}", architecture, key), std::move(value));
  }
  Expected<void> number(std::string_view key, int64_t value) { return add(key, Value(static_cast<uint32_t>(value))); }
  Expected<void> real(std::string_view key, double value) { return add(key, Value(static_cast<float>(value))); }
};

struct TensorList {
  std::vector<SynthTensor>& tensors;
  int32_t layer = -1;
  void add(std::string_view name, std::vector<int64_t> shape, TensorRole role, float constant = 0) {
    std::string full = layer < 0 ? std::string(name) : fmt::format("blk.{}.{}", layer, name);
    tensors.push_back({std::move(full), std::move(shape), role, layer, constant});
  }
  void norm(std::string_view name, int64_t width) { add(fmt::format("{}.weight", name), {width}, TensorRole::vector); }
  void matrix(std::string_view name, std::vector<int64_t> shape, TensorRole role) {
    add(fmt::format("{}.weight", name), std::move(shape), role);
  }
};

Expected<void> add_general(SynthModel& model, std::string_view name) {
  COHORT_TRY(model.metadata.add("general.architecture", Value(model.architecture)));
  COHORT_TRY(model.metadata.add("general.name", Value(fmt::format("synthetic {}", name))));
  return model.metadata.add("cohort.synthetic", Value(true));
}

/// Windows and YaRN of gpt-oss.
Expected<void> add_gpt_oss_keys(Keys& keys, const ModelConfig& c) {
  COHORT_TRY(keys.number("attention.sliding_window", c.sliding.window));
  if (c.sliding.layers != sliding_but_every(2, c.layers))
    COHORT_TRY(keys.add("attention.sliding_window_pattern", Value(c.sliding.layers)));
  if (c.rope_scaling.kind != RopeScaling::Kind::yarn) return {};
  COHORT_TRY(keys.add("rope.scaling.type", Value(std::string("yarn"))));
  COHORT_TRY(keys.real("rope.scaling.factor", c.rope_scaling.factor));
  return keys.number("rope.scaling.original_context_length", static_cast<int64_t>(c.rope_scaling.original_context));
}

std::string_view pre_of(const ModelConfig& c) {
  if (is_gpt_oss(c.architecture)) return "gpt-4o";
  return c.architecture == "llama" ? "llama-bpe" : "qwen2";
}

/// A bias of a matrix's outputs, all alike; `experts` > 0: for each of them.
void add_bias(TensorList& t, std::string_view name, int64_t width, int64_t experts = 0) {
  std::vector<int64_t> shape{width};
  if (experts > 0) shape.push_back(experts);
  t.add(fmt::format("{}.bias", name), std::move(shape), TensorRole::vector, 0.01F);
}

/// qwen3moe, qwen3, qwen2, llama, Mixtral and gpt-oss.
Expected<SynthModel> plain_model(const ModelConfig& c, std::string_view name, bool tied) {
  SynthModel model;
  model.architecture = c.architecture;
  model.layers = c.layers;
  model.tied = tied;
  COHORT_TRY(add_general(model, name));
  Keys keys{model.metadata, c.architecture};
  COHORT_TRY(keys.number("block_count", c.layers));
  COHORT_TRY(keys.number("context_length", c.context));
  COHORT_TRY(keys.number("embedding_length", c.hidden));
  COHORT_TRY(keys.number("feed_forward_length", c.experts > 0 && c.inner == 0 ? c.expert_inner * c.top_k : c.inner));
  COHORT_TRY(keys.number("attention.head_count", c.heads));
  COHORT_TRY(keys.number("attention.head_count_kv", c.kv_heads));
  COHORT_TRY(keys.number("attention.key_length", c.head_dim));
  COHORT_TRY(keys.number("attention.value_length", c.head_dim));
  COHORT_TRY(keys.real("attention.layer_norm_rms_epsilon", c.rms_eps));
  COHORT_TRY(keys.number("rope.dimension_count", c.rotary_dims));
  COHORT_TRY(keys.real("rope.freq_base", c.rope_base));
  COHORT_TRY(keys.number("vocab_size", c.vocabulary));
  if (c.experts > 0) {
    COHORT_TRY(keys.number("expert_count", c.experts));
    COHORT_TRY(keys.number("expert_used_count", c.top_k));
    COHORT_TRY(keys.number("expert_feed_forward_length", c.expert_inner));
  }
  const bool gpt_oss = is_gpt_oss(c.architecture), biased = gpt_oss || c.architecture == "qwen2";
  if (gpt_oss) COHORT_TRY(add_gpt_oss_keys(keys, c));
  COHORT_TRY(add_tokenizer(model.metadata, pre_of(c), c.vocabulary));

  TensorList t{model.tensors};
  const bool qk_norm = c.architecture == "qwen3" || c.architecture == "qwen3moe";
  const int64_t q = int64_t{c.heads} * c.head_dim, kv = int64_t{c.kv_heads} * c.head_dim, hidden = c.hidden;
  t.matrix("token_embd", {hidden, c.vocabulary}, TensorRole::embedding);
  for (t.layer = 0; t.layer < c.layers; ++t.layer) {
    t.norm("attn_norm", hidden);
    t.matrix("attn_q", {hidden, q}, TensorRole::attention);
    t.matrix("attn_k", {hidden, kv}, TensorRole::attention);
    t.matrix("attn_v", {hidden, kv}, TensorRole::attention_v);
    if (biased) {
      add_bias(t, "attn_q", q);
      add_bias(t, "attn_k", kv);
      add_bias(t, "attn_v", kv);
    }
    if (gpt_oss) {
      add_bias(t, "attn_output", hidden);
      t.add("attn_sinks.weight", {c.heads}, TensorRole::vector, 1.0F);
    }
    if (qk_norm) {
      t.norm("attn_q_norm", c.head_dim);
      t.norm("attn_k_norm", c.head_dim);
    }
    t.matrix("attn_output", {q, hidden}, TensorRole::attention);
    t.norm(gpt_oss ? "post_attention_norm" : "ffn_norm", hidden);
    if (c.experts > 0) {
      if (gpt_oss) {
        add_bias(t, "ffn_gate_inp", c.experts);
        add_bias(t, "ffn_gate_exps", c.expert_inner, c.experts);
        add_bias(t, "ffn_up_exps", c.expert_inner, c.experts);
        add_bias(t, "ffn_down_exps", hidden, c.experts);
      }
      t.matrix("ffn_gate_inp", {hidden, c.experts}, TensorRole::router);
      t.matrix("ffn_gate_exps", {hidden, c.expert_inner, c.experts}, TensorRole::feed_forward);
      t.matrix("ffn_up_exps", {hidden, c.expert_inner, c.experts}, TensorRole::feed_forward);
      t.matrix("ffn_down_exps", {c.expert_inner, hidden, c.experts}, TensorRole::feed_forward_down);
    } else {
      t.matrix("ffn_gate", {hidden, c.inner}, TensorRole::feed_forward);
      t.matrix("ffn_up", {hidden, c.inner}, TensorRole::feed_forward);
      t.matrix("ffn_down", {c.inner, hidden}, TensorRole::feed_forward_down);
    }
  }
  t.layer = -1;
  t.norm("output_norm", hidden);
  if (!tied) t.matrix("output", {hidden, c.vocabulary}, TensorRole::head);
  return model;
}

/// Gemma 4, and DiffusionGemma with the tensors that it adds.
Expected<SynthModel> gemma_model(const ModelConfig& c, std::string_view name) {
  const bool diffusion = c.architecture == "diffusion-gemma";
  SynthModel model;
  model.architecture = c.architecture;
  model.layers = c.layers;
  model.tied = true;
  COHORT_TRY(add_general(model, name));
  Keys keys{model.metadata, model.architecture};
  std::vector<int32_t> kv_heads;
  for (int32_t layer = 0; layer < c.layers; ++layer)
    kv_heads.push_back(c.slides(layer) ? c.sliding.kv_heads : c.kv_heads);
  COHORT_TRY(keys.number("block_count", c.layers));
  COHORT_TRY(keys.number("context_length", c.context));
  COHORT_TRY(keys.number("embedding_length", c.hidden));
  COHORT_TRY(keys.number("embedding_length_per_layer_input", 0));
  COHORT_TRY(keys.number("feed_forward_length", c.inner));
  if (c.experts > 0) {
    COHORT_TRY(keys.number("expert_count", c.experts));
    COHORT_TRY(keys.number("expert_used_count", c.top_k));
    COHORT_TRY(keys.number("expert_feed_forward_length", c.expert_inner));
  }
  COHORT_TRY(keys.number("attention.head_count", c.heads));
  COHORT_TRY(keys.add("attention.head_count_kv", Value(std::move(kv_heads))));
  COHORT_TRY(keys.number("attention.shared_kv_layers", 0));
  COHORT_TRY(keys.number("attention.key_length", c.head_dim));
  COHORT_TRY(keys.number("attention.value_length", c.head_dim));
  COHORT_TRY(keys.number("attention.key_length_swa", c.sliding.head_dim));
  COHORT_TRY(keys.number("attention.value_length_swa", c.sliding.head_dim));
  COHORT_TRY(keys.number("attention.sliding_window", c.sliding.window));
  COHORT_TRY(keys.add("attention.sliding_window_pattern", Value(c.sliding.layers)));
  COHORT_TRY(keys.real("attention.layer_norm_rms_epsilon", c.rms_eps));
  COHORT_TRY(keys.real("rope.freq_base", c.rope_base));
  COHORT_TRY(keys.real("rope.freq_base_swa", c.sliding.rope_base));
  COHORT_TRY(keys.number("rope.dimension_count", c.rotary_dims));
  COHORT_TRY(keys.number("rope.dimension_count_swa", c.sliding.rotary_dims));
  if (c.logit_softcap > 0) COHORT_TRY(keys.real("final_logit_softcapping", c.logit_softcap));
  COHORT_TRY(keys.number("vocab_size", c.vocabulary));
  if (diffusion) {
    const auto canvas = static_cast<uint32_t>(c.diffusion.canvas_length);
    COHORT_TRY(model.metadata.add("diffusion.canvas_length", Value(canvas)));
  }
  COHORT_TRY(add_tokenizer(model.metadata, "qwen2", c.vocabulary));

  TensorList t{model.tensors};
  const int64_t hidden = c.hidden;
  t.matrix("token_embd", {hidden, c.vocabulary}, TensorRole::embedding);
  SynthTensor divisors{"rope_freqs.weight", {c.rotary_dims / 2}, TensorRole::vector};
  for (int32_t i = 0; i < c.rotary_dims / 2; ++i)
    divisors.values.push_back(c.turning_pairs < 0 || i < c.turning_pairs ? 1.0F : 1e30F);
  model.tensors.push_back(std::move(divisors));
  for (t.layer = 0; t.layer < c.layers; ++t.layer) {
    const bool slides = c.slides(t.layer);
    const int64_t head_dim = slides ? c.sliding.head_dim : c.head_dim;
    const int64_t q = c.heads * head_dim, kv = (slides ? c.sliding.kv_heads : c.kv_heads) * head_dim;
    t.norm("attn_norm", hidden);
    t.matrix("attn_q", {hidden, q}, TensorRole::attention);
    t.matrix("attn_k", {hidden, kv}, TensorRole::attention);
    if (slides || !c.keys_as_values) t.matrix("attn_v", {hidden, kv}, TensorRole::attention_v);
    t.norm("attn_q_norm", head_dim);
    t.norm("attn_k_norm", head_dim);
    t.matrix("attn_output", {q, hidden}, TensorRole::attention);
    for (const char* norm : {"post_attention_norm", "ffn_norm", "post_ffw_norm"}) t.norm(norm, hidden);
    t.matrix("ffn_gate", {hidden, c.inner}, TensorRole::feed_forward);
    t.matrix("ffn_up", {hidden, c.inner}, TensorRole::feed_forward);
    t.matrix("ffn_down", {c.inner, hidden}, TensorRole::feed_forward_down);
    if (c.experts > 0) {
      for (const char* norm : {"post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"}) t.norm(norm, hidden);
      t.matrix("ffn_gate_inp", {hidden, c.experts}, TensorRole::router);
      t.add("ffn_gate_inp.scale", {hidden}, TensorRole::vector);
      t.matrix("ffn_gate_up_exps", {hidden, 2 * c.expert_inner, c.experts}, TensorRole::feed_forward);
      t.matrix("ffn_down_exps", {c.expert_inner, hidden, c.experts}, TensorRole::feed_forward_down);
      t.add("ffn_down_exps.scale", {c.experts}, TensorRole::vector);
    }
    t.add("layer_output_scale.weight", {1}, TensorRole::vector, 1.0F);
    if (diffusion) t.add("enc_layer_output_scale.weight", {1}, TensorRole::vector, 1.0F);
  }
  t.layer = -1;
  t.norm("output_norm", hidden);
  if (diffusion) {
    t.norm("self_cond_pre_norm", hidden);
    t.matrix("self_cond_gate", {hidden, c.inner}, TensorRole::feed_forward);
    t.matrix("self_cond_up", {hidden, c.inner}, TensorRole::feed_forward);
    t.matrix("self_cond_down", {c.inner, hidden}, TensorRole::feed_forward_down);
  }
  return model;
}

/// Five sliding layers, then a full one.
std::vector<bool> gemma_pattern(int32_t layers) {
  constexpr int32_t kPeriod = 6;
  std::vector<bool> sliding;
  for (int32_t layer = 0; layer < layers; ++layer) sliding.push_back(layer % kPeriod != kPeriod - 1);
  return sliding;
}

struct GemmaPreset {
  std::string_view name, architecture;
  int32_t layers, hidden, heads, kv_heads, sliding_kv_heads, vocabulary, inner, expert_inner, experts;
};
/// The small one has heads of the same sizes, and widths that like the large one's are no whole number of 256.
constexpr std::array kGemmaPresets = {
    GemmaPreset{"gemma4-26b-a4b", "gemma4", 30, 2816, 16, 2, 8, 262144, 2112, 704, 128},
    GemmaPreset{"gemma4-mini", "gemma4", 12, 1024, 4, 1, 2, 32000, 832, 448, 64},
    GemmaPreset{"diffusiongemma-26b-a4b", "diffusion-gemma", 30, 2816, 16, 2, 8, 262144, 2112, 704, 128},
    GemmaPreset{"diffusiongemma-mini", "diffusion-gemma", 12, 1024, 4, 1, 2, 32000, 832, 448, 64},
};

ModelConfig gemma_config(const GemmaPreset& p, int32_t layers) {
  ModelConfig c;
  c.architecture = p.architecture;
  c.layers = layers > 0 ? layers : p.layers;
  c.hidden = p.hidden;
  c.heads = p.heads;
  c.kv_heads = p.kv_heads;
  c.head_dim = c.rotary_dims = 512;
  c.turning_pairs = 64;
  c.rope_base = 1e6;
  c.sliding = {gemma_pattern(c.layers), 1024, p.sliding_kv_heads, 256, 256, 1e4};
  c.keys_as_values = true;
  c.logit_softcap = 30;
  c.vocabulary = p.vocabulary;
  c.context = 262144;
  c.inner = p.inner;
  c.expert_inner = p.expert_inner;
  c.experts = p.experts;
  c.top_k = 8;
  if (c.architecture == "diffusion-gemma") c.diffusion.canvas_length = 256;
  return c;
}

struct GptOssPreset {
  std::string_view name;
  int32_t layers, hidden, heads, kv_heads, vocabulary, expert_inner, experts;
};
/// The small one keeps the heads, the window and the number of experts of a token.
constexpr std::array kGptOssPresets = {
    GptOssPreset{"gpt-oss-20b", 24, 2880, 64, 8, 201088, 2880, 32},
    GptOssPreset{"gpt-oss-120b", 36, 2880, 64, 8, 201088, 2880, 128},
    GptOssPreset{"gpt-oss-mini", 12, 960, 16, 2, 32000, 960, 32},
};

ModelConfig gpt_oss_config(const GptOssPreset& p, int32_t layers) {
  ModelConfig c;
  c.architecture = "gpt-oss";
  c.layers = layers > 0 ? layers : p.layers;
  c.hidden = p.hidden;
  c.heads = p.heads;
  c.kv_heads = p.kv_heads;
  c.head_dim = c.rotary_dims = 64;
  c.rope_base = 150000;
  c.rope_scaling.kind = RopeScaling::Kind::yarn;
  c.rope_scaling.factor = 32;
  c.rope_scaling.original_context = 4096;
  c.sliding.layers = sliding_but_every(2, c.layers);
  c.sliding.window = 128;
  c.vocabulary = p.vocabulary;
  c.context = 131072;
  c.rms_eps = 1e-5F;
  c.expert_inner = p.expert_inner;
  c.experts = p.experts;
  c.top_k = 4;
  return c;
}

struct Preset {
  std::string_view name, architecture;
  int32_t layers, hidden, heads, kv_heads, head_dim, vocabulary, context, inner, expert_inner, experts, top_k;
  double rope_base;
  bool tied;
};
constexpr std::array kPresets = {
    Preset{"qwen3-30b-a3b", "qwen3moe", 48, 2048, 32, 4, 128, 151936, 40960, 6144, 768, 128, 8, 1e6, false},
    Preset{"qwen3-moe-mini", "qwen3moe", 12, 1024, 16, 4, 128, 32000, 40960, 3072, 384, 64, 8, 1e6, false},
    Preset{"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 151936, 40960, 3072, 0, 0, 0, 1e6, true},
    Preset{"llama-3.2-1b", "llama", 16, 2048, 32, 8, 64, 128256, 131072, 8192, 0, 0, 0, 5e5, true},
    Preset{"llama-3.1-8b", "llama", 32, 4096, 32, 8, 128, 128256, 131072, 14336, 0, 0, 0, 5e5, false},
};

/// More layers than a file has repeat its pattern of windows.
void set_layers(ModelConfig& c, int32_t layers) {
  c.layers = layers;
  if (c.sliding.layers.empty()) return;
  const std::vector<bool> pattern = std::move(c.sliding.layers);
  c.sliding.layers.clear();
  for (int32_t layer = 0; layer < layers; ++layer)
    c.sliding.layers.push_back(pattern[static_cast<size_t>(layer) % pattern.size()]);
}

}  // namespace

std::vector<std::string_view> synth_config_names() {
  std::vector<std::string_view> names;
  names.reserve(std::size(kPresets) + std::size(kGemmaPresets) + std::size(kGptOssPresets));
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  for (const GemmaPreset& preset : kGemmaPresets) names.push_back(preset.name);
  for (const GptOssPreset& preset : kGptOssPresets) names.push_back(preset.name);
  return names;
}

Expected<SynthModel> synth_model(const std::string& config, int32_t layers) {
  if (layers < 0 || layers > 10000) {
    return fail(ErrorCode::invalid_argument, "{} layers: expected 1 to 10000, or 0 for the model's own number", layers);
  }
  for (const GemmaPreset& preset : kGemmaPresets) {
    if (config == preset.name) return gemma_model(gemma_config(preset, layers), preset.name);
  }
  for (const GptOssPreset& preset : kGptOssPresets) {
    if (config == preset.name) return plain_model(gpt_oss_config(preset, layers), preset.name, false);
  }
  for (const Preset& p : kPresets) {
    if (config != p.name) continue;
    ModelConfig c;
    c.architecture = p.architecture;
    c.layers = layers > 0 ? layers : p.layers;
    c.hidden = p.hidden;
    c.heads = p.heads;
    c.kv_heads = p.kv_heads;
    c.head_dim = c.rotary_dims = p.head_dim;
    c.vocabulary = p.vocabulary;
    c.context = p.context;
    c.inner = p.inner;
    c.expert_inner = p.expert_inner;
    c.experts = p.experts;
    c.top_k = p.top_k;
    c.rope_base = p.rope_base;
    return plain_model(c, p.name, p.tied);
  }
  if (!config.ends_with(".json")) {
    return fail(ErrorCode::not_found, "no synthetic model '{}'; known are {}, or give the path of a config.json",
                config, fmt::join(synth_config_names(), ", "));
  }
  COHORT_ASSIGN(const nlohmann::json json, read_json_file(config, size_t{16} << 20));
  COHORT_ASSIGN(ModelConfig c, config_from_huggingface(json));
  if (layers > 0) set_layers(c, layers);
  if (is_gemma(c.architecture)) return gemma_model(c, c.name.empty() ? c.architecture : c.name);
  COHORT_ASSIGN(const bool tied, JsonObject(json, config).get_bool("tie_word_embeddings", false));
  return plain_model(c, c.name.empty() ? c.architecture : c.name, tied);
}

}  // namespace cohort
