// A program: the operations of one step as data. A model family builds it once at load (src/models/<family>.cpp);
// backends run it, `inspect --program` prints it, the roofline counts its bytes and operations, and the profiler names
// them.
//
// Shapes are symbolic in the number of rows: a value is [rows, width] or, after `gather`, [sampled, width].
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/weights.h"

namespace cohort {

enum class Activation { silu, gelu_tanh, clamped_swiglu /* gpt-oss: numerics::clamped_swiglu */ };
enum class RopePairing { half_split /* (i, i + n/2): NeoX */, adjacent /* (2i, 2i+1) */ };
enum class Extent { rows, sampled };
enum class ValueKind { floats, routes };

using ValueId = int32_t;

struct ValueInfo {
  std::string name;
  int32_t width = 0;  // floats per row; for routes: top_k (expert, weight) pairs
  Extent extent = Extent::rows;
  ValueKind kind = ValueKind::floats;
};

/// cos and sin of position * frequency, computed in double and rounded once. One table serves all layers that share it.
struct RopeTable {
  int32_t rotary_dims = 0;          // dimensions of a head that rotate; pairs = rotary_dims / 2
  std::vector<double> frequencies;  // [pairs] radians per position (scaling already applied)
  float magnitude = 1.0F;           // YaRN's attention factor, folded into cos and sin
  /// [positions, pairs]; filled for every position of the context when the model is loaded.
  std::vector<float> cosines, sines;
  void fill(int32_t positions);
};

/// Of a model whose sliding-window layers rotate otherwise than the others; families without such layers use `full`.
struct RopeTables {
  RopeTable full, sliding;
};

namespace op {
/// token ids -> [rows, cols] rows of the table times `scale` (1 = untouched).
struct Embed {
  const Weight* table;
  float scale = 1.0F;
};
/// RMS norm of each group of `group` values (the whole row, or each head). weight [group] or null.
struct RmsNorm {
  const VectorWeight* weight;
  float eps;
  int32_t group;
};
/// [.., cols] -> [.., rows], quantised by rule 2 when the weight's type is; bias [rows] or null.
struct Linear {
  const Weight* weight;
  const VectorWeight* bias = nullptr;
};
/// Rotates each head of [rows, heads * head_dim] by its row's position.
struct Rope {
  const RopeTable* table;
  int32_t heads, head_dim;
  RopePairing pairing;
};
/// inputs q [rows, heads * head_dim], k and v [rows, kv_heads * head_dim]: appends k and v to layer `cache_layer` of
/// the KV cache, then attends (rule 7). window 0 = full; else position j is visible when t - j < window. sinks [heads]:
/// a score of each head that takes part in its softmax and has no value; null: none.
struct Attend {
  int32_t cache_layer;
  int32_t heads, kv_heads, head_dim;
  float scale;
  int32_t window = 0;
  const VectorWeight* sinks = nullptr;
};
struct Add {};  // a + b
/// inputs gate, up: act(gate) * up, or what clamped_swiglu makes of the two.
struct Gate {
  Activation activation;
};
/// [rows, cols] -> routes. Softmax over all experts, top k, weights renormalised to sum 1 when `renormalise`, then
/// times per_expert_scale if any. bias [experts] is added to the logits, or null.
struct Route {
  const Weight* router;
  int32_t top_k;
  bool renormalise;
  const VectorWeight* per_expert_scale = nullptr;
  const VectorWeight* bias = nullptr;
};
/// inputs x, routes: the weighted sum over slots of down(act(gate x) * (up x)) (rule 5). Biases [experts * rows of the
/// matrix], each expert's one after another, are added to what their matrix gives; null: none.
struct Experts {
  const Weight* gate;
  const Weight* up;
  const Weight* down;
  Activation activation;
  const VectorWeight* gate_bias = nullptr;
  const VectorWeight* up_bias = nullptr;
  const VectorWeight* down_bias = nullptr;
};
/// x * values: one factor, or one per column. canvas_values: those of the rows of a canvas, null: the same.
struct Scale {
  const VectorWeight* values;
  const VectorWeight* canvas_values = nullptr;
  const VectorWeight* of(bool canvas) const { return canvas && canvas_values != nullptr ? canvas_values : values; }
};
/// -> [rows, cols] what the rows of a canvas were thought to hold (SequenceRows::mixtures): the sum of the rows of the
/// table that belong to their tokens, each times its weight, then times `scale` (rule 10); +0 for all other rows.
struct Mix {
  const Weight* table;
  float scale;
};
/// inputs e, g: rows of a canvas become rms_norm(e + g) without a weight, all others stay e.
struct Condition {
  float eps;
};
/// cap * tanh(x / cap).
struct Softcap {
  float cap;
};
/// [rows, w] -> [sampled, w]: the rows whose logits are wanted.
struct Gather {};
}  // namespace op

using Action = std::variant<op::Embed, op::RmsNorm, op::Linear, op::Rope, op::Attend, op::Add, op::Gate, op::Route,
                            op::Experts, op::Scale, op::Softcap, op::Gather, op::Mix, op::Condition>;

struct Op {
  std::string name;    // "blk.3.attn_q"
  int32_t layer = -1;  // -1 outside of the layers
  std::vector<ValueId> inputs;
  ValueId output = -1;
  Action action;
};

/// "linear", "experts", ...
std::string_view kind_name(const Action& action);

/// What the KV cache must hold for one layer.
struct CacheLayer {
  int32_t kv_heads, head_dim;
  int32_t window;  // 0 = every position
};

struct Program {
  std::string family;
  int32_t vocabulary = 0;
  int32_t context = 0;  // positions the model was made for
  std::vector<ValueInfo> values;
  std::vector<Op> ops;
  std::vector<CacheLayer> cache_layers;
  ValueId logits = -1;  // [sampled, vocabulary]
};

/// Bytes of weights read and operations (multiply-adds counted as 2) of one op at `rows` rows of which `sampled` are
/// sampled, with `distinct_experts` experts touched and `kv_positions` cached positions read in sum over the rows.
struct OpCost {
  double weight_bytes = 0, activation_bytes = 0, kv_bytes = 0, operations = 0;
};
struct CostQuery {
  int64_t rows = 1, sampled = 1;
  double distinct_experts = 0, kv_positions = 0;
  double kv_value_bytes = 2;  // of the cache type
};
/// The matrices that the operation multiplies with (a table of tokens is none): one, or gate, up and down.
std::vector<const Weight*> matrices_of(const Op& op);

OpCost cost_of(const Program& program, const Op& op, const CostQuery& query);
/// Expected number of distinct experts when `rows` rows pick `top_k` of `experts` uniformly.
double expected_distinct_experts(int64_t experts, int64_t top_k, int64_t rows);

/// What an expert's bias adds, or null. [rows of the matrix]
inline const float* bias_of(const VectorWeight* biases, int64_t expert, int64_t rows) {
  return biases != nullptr ? biases->values.data() + expert * rows : nullptr;
}

/// One line per op: name, kind, shapes, weight type and bytes.
std::string to_text(const Program& program);

}  // namespace cohort
