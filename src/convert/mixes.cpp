// Sources: the published behaviour of llama.cpp's quantiser (llama-quant.cpp), as files made with it show.
#include "convert/mixes.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

namespace cohort {
namespace {

using enum TensorType;

constexpr uint32_t kGuessed = 1024;  // general.file_type: look at the tensors

constexpr MixInfo kMixes[] = {
    {"f32", Mix::plain, f32, 0},
    {"f16", Mix::plain, f16, 1},
    {"bf16", Mix::plain, bf16, 32},
    {"q8_0", Mix::q8_0, q8_0, 7},
    {"q6_k", Mix::q6_k, q6_k, 18},
    {"q5_k_m", Mix::q5_k_m, q5_k, 17},
    {"q5_k_s", Mix::q5_k_s, q5_k, 16},
    {"q5_1", Mix::other, q5_1, 9},
    {"q5_0", Mix::q5_0, q5_0, 8},
    {"q4_k_m", Mix::q4_k_m, q4_k, 15},
    {"q4_k_s", Mix::q4_k_s, q4_k, 14},
    {"q4_1", Mix::other, q4_1, 3},
    {"q4_0", Mix::q4_0, q4_0, 2},
    {"iq4_nl", Mix::iq4_nl, iq4_nl, 25},
    {"iq4_xs", Mix::iq4_xs, iq4_xs, 30},
    {"q3_k_m", Mix::q3_k_m, q3_k, 12},
    {"q3_k_l", Mix::q3_k_l, q3_k, 13},
    {"q3_k_s", Mix::q3_k_s, q3_k, 11},
    {"iq3_s", Mix::iq3_s, iq3_s, 26},
    {"iq3_m", Mix::iq3_m, iq3_s, 27},
    {"iq3_xs", Mix::iq3_xs, iq3_s, 22},
    {"iq3_xxs", Mix::iq3_xxs, iq3_xxs, 23},
    {"q2_k", Mix::q2_k, q2_k, 10},
    {"q2_k_s", Mix::q2_k_s, q2_k, 21},
    {"iq2_m", Mix::iq2_m, iq2_s, 29},
    {"iq2_s", Mix::iq2_s, iq2_xs, 28},
    {"iq2_xs", Mix::iq2_xs, iq2_xs, 20},
    {"iq2_xxs", Mix::iq2_xxs, iq2_xxs, 19},
    {"iq1_m", Mix::iq1_m, iq1_m, 31},
    {"iq1_s", Mix::iq1_s, iq1_s, 24},
    {"tq2_0", Mix::ternary, tq2_0, 37},
    {"tq1_0", Mix::ternary, tq1_0, 36},
    {"mxfp4_moe", Mix::fp4_experts, mxfp4, 38},
    {"mxfp4", Mix::other, mxfp4, kGuessed},
    {"nvfp4", Mix::other, nvfp4, kGuessed},
    {"q2_0", Mix::other, q2_0, kGuessed},
    {"q1_0", Mix::other, q1_0, kGuessed},
};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// "blk.12.ffn_down.weight" -> 12; 0 outside of the layers.
int64_t layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  int64_t layer = 0;
  if (name.starts_with(kPrefix)) std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  return layer;
}

double bits_of(TensorType type) {
  const TypeInfo& info = type_info(type);
  return 8.0 * info.block_bytes / info.block_values;
}

bool is_attention(std::string_view name) {
  return has(name, "attn_q.weight") || has(name, "attn_k.weight") || has(name, "attn_v.weight") ||
         has(name, "attn_output.weight") || has(name, "attn_qkv.weight");
}

/// The choice for one tensor.
class Chooser {
 public:
  Chooser(const MixInfo& info, const MixModel& model, std::string_view name)
      : info_(info), model_(model), name_(name), layer_(layer_of(name)) {}

  TensorType choose() const {
    const bool head = name_ == "output.weight" || (model_.tied && name_ == "token_embd.weight");
    if (head) return head_type();
    if (name_ == "token_embd.weight") return embedding_type();
    if (info_.mix == Mix::fp4_experts) return has(name_, "_exps") ? info_.base : q8_0;
    if (very_low()) return very_low_type();
    if (has(name_, "attn_v.weight")) return v_type();
    if (has(name_, "attn_k.weight") || has(name_, "attn_q.weight")) return qk_type(has(name_, "attn_k.weight"));
    if (has(name_, "ffn_down")) return down_type();
    if (has(name_, "attn_output.weight")) return attention_output_type();
    if (has(name_, "attn_qkv.weight")) return qkv_type();
    const bool middle = layer_ >= model_.layers / 8 && layer_ < 7 * model_.layers / 8;
    if ((has(name_, "ffn_gate") || has(name_, "ffn_up")) && info_.mix == Mix::iq3_xs && middle) return iq3_xxs;
    return info_.base;
  }

 private:
  template <class... Mixes>
  bool is(Mixes... mixes) const {
    return ((info_.mix == mixes) || ...);
  }
  bool very_low() const { return is(Mix::iq1_s, Mix::iq1_m, Mix::iq2_xxs, Mix::iq2_xs, Mix::iq2_s, Mix::iq2_m); }
  bool two_and_a_half() const { return is(Mix::iq2_s, Mix::iq2_m); }
  bool eight_experts() const { return model_.experts == 8; }
  bool grouped() const { return model_.query_groups >= 4; }
  bool early(int64_t part) const { return layer_ < model_.layers / part; }
  /// The first and last eighth of the layers and every third between them.
  bool more_bits() const {
    const int64_t n = model_.layers;
    return layer_ < n / 8 || layer_ >= 7 * n / 8 || (layer_ - n / 8) % 3 == 2;
  }

  TensorType head_type() const {
    if (is(Mix::plain, Mix::q8_0) || info_.base == q8_0) return info_.base;
    if (is(Mix::fp4_experts)) return q8_0;
    if (very_low() || is(Mix::iq3_xxs)) return q5_k;
    return q6_k;
  }
  TensorType embedding_type() const {
    if (is(Mix::iq1_s, Mix::iq1_m, Mix::iq2_xxs, Mix::iq2_xs)) return q2_k;
    if (two_and_a_half() || is(Mix::iq3_xxs)) return iq3_s;
    if (is(Mix::ternary)) return q4_k;
    if (is(Mix::fp4_experts)) return q8_0;
    return info_.base;
  }
  TensorType very_low_type() const {
    if (has(name_, "attn_v.weight")) {
      if (grouped() || model_.experts >= 4) return q4_k;
      return two_and_a_half() ? iq3_s : q2_k;
    }
    if (has(name_, "attn_k.weight") && eight_experts()) return q4_k;
    if (has(name_, "ffn_down") && early(8)) return two_and_a_half() ? iq3_s : q2_k;
    if (has(name_, "attn_output.weight")) {
      if (eight_experts()) return q5_k;
      if (is(Mix::iq1_s, Mix::iq1_m)) return iq2_xxs;
      if (two_and_a_half()) return iq3_s;
    }
    return info_.base;
  }
  TensorType v_type() const {
    if (eight_experts() && !is(Mix::plain)) return q8_0;
    switch (info_.mix) {
      case Mix::q2_k:
        return grouped() ? q4_k : q3_k;
      case Mix::q2_k_s:
      case Mix::iq3_xs:
      case Mix::iq3_s:
        return grouped() ? q4_k : info_.base;
      case Mix::iq3_xxs:
        if (grouped()) return q4_k;
        return model_.importance ? iq3_xxs : iq3_s;
      case Mix::iq3_m:
        return q4_k;
      case Mix::q3_k_m:
        return layer_ < 2 ? q5_k : q4_k;
      case Mix::q3_k_l:
        return q5_k;
      case Mix::iq4_nl:
      case Mix::iq4_xs:
        return grouped() ? q5_k : info_.base;
      case Mix::q4_k_m:
      case Mix::q5_k_m:
        return more_bits() ? q6_k : info_.base;
      case Mix::q4_k_s:
        return layer_ < 4 ? q5_k : info_.base;
      default:
        return info_.base;
    }
  }
  TensorType qk_type(bool k) const {
    if (k && eight_experts() && !is(Mix::plain)) return q8_0;
    if (is(Mix::iq3_xs)) return iq3_xxs;
    if (is(Mix::iq3_xxs)) return iq2_s;
    return info_.base;
  }
  TensorType down_type() const {
    switch (info_.mix) {
      case Mix::q2_k:
        return q3_k;
      case Mix::q2_k_s:
        return early(8) ? q4_k : info_.base;
      case Mix::iq3_xxs:
        if (model_.importance) return info_.base;
        return early(8) ? q4_k : q3_k;
      case Mix::q3_k_m:
        return early(16) ? q5_k : q4_k;
      case Mix::iq3_m:
        return early(8) || (eight_experts() && more_bits()) ? q4_k : info_.base;
      case Mix::q3_k_l:
        return q5_k;
      case Mix::q4_k_m:
      case Mix::q5_k_m:
        return more_bits() ? q6_k : info_.base;
      case Mix::iq4_nl:
      case Mix::iq4_xs:
        return early(8) && !model_.importance ? q5_k : info_.base;
      case Mix::q4_k_s:
        return early(8) ? q5_k : info_.base;
      case Mix::q4_0:
        return early(8) && model_.importance ? q4_1 : info_.base;
      case Mix::q5_0:
        return early(8) && model_.importance ? q5_1 : info_.base;
      default:
        return info_.base;
    }
  }
  TensorType attention_output_type() const {
    if (eight_experts()) {
      const bool low = is(Mix::q2_k, Mix::iq3_xs, Mix::iq3_xxs, Mix::q3_k_s, Mix::q3_k_m, Mix::iq4_nl, Mix::q4_k_s,
                          Mix::q4_k_m, Mix::iq3_s, Mix::iq3_m, Mix::iq4_xs);
      return low ? q5_k : info_.base;
    }
    if (is(Mix::q2_k)) return q3_k;
    if (is(Mix::iq3_xxs)) return iq3_s;
    if (is(Mix::q3_k_m, Mix::iq3_m)) return q4_k;
    if (is(Mix::q3_k_l)) return q5_k;
    return info_.base;
  }
  TensorType qkv_type() const {
    if (is(Mix::q3_k_m, Mix::q3_k_l, Mix::iq3_m)) return q4_k;
    if (is(Mix::q4_k_m)) return q5_k;
    if (is(Mix::q5_k_m)) return q6_k;
    return info_.base;
  }

  const MixInfo& info_;
  const MixModel& model_;
  std::string_view name_;
  int64_t layer_;
};

/// The next wider type that people know, for the attention of MoE models.
TensorType wider_than(TensorType base) {
  const double bits = bits_of(base);
  if (bits >= 16 || base == q8_0) return base;
  if (bits >= bits_of(q6_k)) return q8_0;
  if (bits >= bits_of(q5_k)) return q6_k;
  if (bits >= bits_of(iq4_xs)) return q5_k;
  return q4_k;
}

}  // namespace

std::span<const MixInfo> all_mixes() {
  return kMixes;
}

const MixInfo* find_mix(std::string_view name) {
  for (const MixInfo& mix : kMixes) {
    if (equal_ignoring_case(mix.name, name)) return &mix;
  }
  for (const MixInfo& mix : kMixes) {
    if (equal_ignoring_case(type_info(mix.base).name, name)) return &mix;
  }
  return nullptr;
}

MixModel mix_model(const gguf::Metadata& metadata, bool tied) {
  MixModel model;
  model.tied = tied;
  const std::string architecture(metadata.get_string("general.architecture", "").value_or(""));
  const auto number = [&](const char* key) -> int64_t {
    const std::string full = architecture + "." + key;
    if (!metadata.contains(full)) return 0;
    if (const auto value = metadata.get_i64(full)) return *value;
    const auto list = metadata.get_int_array(full);  // one a layer
    return list && !list->empty() ? *std::ranges::max_element(*list) : 0;
  };
  model.layers = number("block_count");
  model.experts = number("expert_count");
  const int64_t heads = number("attention.head_count"), kv_heads = number("attention.head_count_kv");
  if (kv_heads > 0) model.query_groups = heads / kv_heads;
  return model;
}

bool is_quantised_by_mixes(std::string_view name, std::span<const int64_t> shape) {
  if (shape.size() < 2 || !name.ends_with("weight")) return false;
  for (const std::string_view kept :
       {"_norm.weight", "ffn_gate_inp", "altup", "laurel", "per_layer_model_proj", "position_embd", "token_types",
        "ssm_conv1d", "shortconv.conv", "time_mix", "attn_rel_b", "_scale"}) {
    if (has(name, kept)) return false;
  }
  return true;
}

TensorType mix_type(const MixInfo& mix, const MixModel& model, AttentionWidth attention, const std::string& name) {
  if (mix.mix == Mix::plain) return mix.base;
  const TensorType type = Chooser(mix, model, name).choose();
  if (model.experts == 0 || attention == AttentionWidth::as_mix || !is_attention(name)) return type;
  const TensorType wide = wider_than(mix.base);
  return bits_of(wide) > bits_of(type) ? wide : type;
}

TensorType fitting_type(TensorType type, int64_t cols) {
  const auto fits = [&](TensorType candidate) { return cols % type_info(candidate).block_values == 0; };
  if (fits(type)) return type;
  TensorType narrower_blocks = f16;
  switch (type) {
    case q4_k:
      narrower_blocks = q5_0;
      break;
    case q5_k:
      narrower_blocks = q5_1;
      break;
    case q6_k:
      narrower_blocks = q8_0;
      break;
    case q2_k:
    case q3_k:
    case iq1_s:
    case iq1_m:
    case iq2_xxs:
    case iq2_xs:
    case iq2_s:
    case iq3_xxs:
    case iq3_s:
    case iq4_xs:
    case tq1_0:
    case tq2_0:
      narrower_blocks = iq4_nl;
      break;
    default:
      break;
  }
  return fits(narrower_blocks) ? narrower_blocks : f16;
}

bool needs_importance(TensorType type) {
  return type == iq1_s || type == iq1_m || type == iq2_xxs || type == iq2_xs || type == iq2_s;
}

}  // namespace cohort
