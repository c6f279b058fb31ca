// The one place that says which models make sense, whatever file they come from.
#include <cmath>

#include "base/result.h"
#include "models/config.h"
#include "models/gemma_config.h"
#include "models/gpt_oss_config.h"
#include "models/rope.h"

namespace cohort {
namespace {

// Far from every published model on both sides; what lies beyond is a damaged file or a slip of the pen.
constexpr double kMaxRmsEps = 0.1;
constexpr double kMaxRopeBase = 1e12;
constexpr double kMaxRopeFactor = 1e4;
constexpr double kMaxTurns = 1e6;            // YaRN's betas
constexpr double kMaxAttentionFactor = 100;  // YaRN's scale of queries and keys

constexpr const char* kFix = "correct it in config.json, or convert the model again";

/// `what` with the names that files give it.
Expected<void> positive(std::string_view what, int64_t value) {
  if (value > 0) return {};
  return fail(ErrorCode::corrupt, "the model's {} is {}; it must be at least 1; {}", what, value, kFix);
}

/// Above `low`, up to `high`; a NaN is neither.
template <class T>
Expected<void> within(std::string_view what, T value, double low, double high) {
  if (value > static_cast<T>(low) && value <= static_cast<T>(high)) return {};
  return fail(ErrorCode::corrupt, "the model's {} is {:g}; it must be above {:g} and at most {:g}; {}", what, value,
              low, high, kFix);
}

Expected<void> check_rope(const ModelConfig& c) {
  if (c.rotary_dims <= 0 || c.rotary_dims % 2 != 0 || c.rotary_dims > c.head_dim) {
    return fail(ErrorCode::corrupt,
                "{} rotary dimensions (rope.dimension_count) of a head of {}; expected an even number of 2 to {}; {}",
                c.rotary_dims, c.head_dim, c.head_dim, kFix);
  }
  COHORT_TRY(within("rotary base (rope_theta, rope.freq_base)", c.rope_base, 1, kMaxRopeBase));
  const RopeScaling& s = c.rope_scaling;
  using Kind = RopeScaling::Kind;
  if (s.kind == Kind::none) return {};
  COHORT_TRY(within("rotary scaling factor (factor, rope.scaling.factor)", s.factor, 0, kMaxRopeFactor));
  if (s.kind == Kind::linear) return {};
  COHORT_TRY(within("original context (original_max_position_embeddings, rope.scaling.original_context_length)",
                    s.original_context, 0, static_cast<double>(kMaxContext)));
  if (s.kind == Kind::llama3) {
    COHORT_TRY(within("low_freq_factor", s.low_frequency_factor, 0, kMaxTurns));
    COHORT_TRY(within("high_freq_factor", s.high_frequency_factor, s.low_frequency_factor, kMaxTurns));
    return {};
  }
  COHORT_TRY(within("beta_slow (rope.scaling.yarn_beta_slow)", s.beta_slow, 0, kMaxTurns));
  COHORT_TRY(within("beta_fast (rope.scaling.yarn_beta_fast)", s.beta_fast, s.beta_slow, kMaxTurns));
  return within("attention factor (attention_factor, rope.scaling.attn_factor)", s.attention_factor, 0,
                kMaxAttentionFactor);
}

}  // namespace

Expected<void> check(const ModelConfig& c) {
  COHORT_TRY(positive("number of layers (num_hidden_layers, block_count)", c.layers));
  COHORT_TRY(positive("hidden size (hidden_size, embedding_length)", c.hidden));
  COHORT_TRY(positive("number of attention heads (num_attention_heads, attention.head_count)", c.heads));
  COHORT_TRY(positive("number of KV heads (num_key_value_heads, attention.head_count_kv)", c.kv_heads));
  COHORT_TRY(positive("head dimension (head_dim, attention.key_length)", c.head_dim));
  COHORT_TRY(positive("vocabulary (vocab_size, tokenizer.ggml.tokens)", c.vocabulary));
  COHORT_TRY(positive("context length (max_position_embeddings, context_length)", c.context));
  if (c.heads % c.kv_heads != 0)
    return fail(ErrorCode::corrupt, "{} attention heads cannot share {} KV heads evenly; {}", c.heads, c.kv_heads,
                kFix);
  COHORT_TRY(within("RMS norm epsilon (rms_norm_eps, attention.layer_norm_rms_epsilon)", c.rms_eps, 0, kMaxRmsEps));
  COHORT_TRY(check_rope(c));
  if (is_gemma(c.architecture) || is_gpt_oss(c.architecture)) {
    if (const auto checked = is_gemma(c.architecture) ? check_gemma(c) : check_gpt_oss(c); !checked)
      return fail(checked.error().code, "{}; {}", checked.error().message, kFix);
  }
  if (c.experts == 0) return positive("feed-forward width (intermediate_size, feed_forward_length)", c.inner);
  COHORT_TRY(positive("expert width (moe_intermediate_size, expert_feed_forward_length)", c.expert_inner));
  if (c.top_k < 1 || c.top_k > c.experts) {
    return fail(ErrorCode::corrupt,
                "{} of {} experts are used per token (num_experts_per_tok, expert_used_count); expected 1 to {}; {}",
                c.top_k, c.experts, c.experts, kFix);
  }
  return {};
}

}  // namespace cohort
