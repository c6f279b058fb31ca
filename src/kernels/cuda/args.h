// What the kernels of the CUDA backend are told: plain structs, one per kernel, and the functions that launch them. All
// extents (rows, sampled rows, groups, positions) are read from device memory when the kernel runs, so one captured
// graph serves every batch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/plans.h"

namespace cohort::cuda {

inline constexpr int kMaxWindows = 4;  // distinct attention windows of a program
inline constexpr int kMaxTopK = 32;
inline constexpr int kMaxExperts = 512;

/// The step's data in device memory; filled by launch_begin from the host's mapped copy of the same layout.
struct Step {
  int32_t* header;        // [kHeaderWords] rows, sampled, units per window, ...
  int32_t* tokens;        // [rows]
  int32_t* positions;     // [rows]
  int32_t* page_begin;    // [rows] where the row's sequence starts in `pages`
  int32_t* sampled_rows;  // [sampled]
  int32_t* pages;
  int32_t* units[kMaxWindows];  // [units][kUnitWords]; those with many positions first
  int32_t max_rows;             // most rows of a step of this graph: sizes grids, nothing else
#ifdef COHORT_STAMPS
  unsigned long long* stamps;  // [launches][2][kStampBlocks][kStampWords], see device.cuh
  int32_t launch;
#endif
};
inline constexpr int kStampBlocks = 400, kStampWords = 16;
/// A unit of attention: one split of 256 positions, of one row or of several rows of one sequence that see the same
/// splits; row and position are the first one's. Partial results of a row stand together, those of the first from
/// `partial` on; pages: the eight of the split, those past the last position repeat one before.
enum UnitWord {
  kUnitRow = 0,
  kUnitSplit = 1,
  kUnitPosition = 2,
  kUnitPartial = 3,
  kUnitPages = 4,
  kUnitRows = 12,
  kUnitWords = 13
};
inline constexpr int kPartialHead = 4;  // floats before a head's partial result: maximum, sum, -, -
inline constexpr int kFewRows = 4;      // of a unit; more: launch_attention_tile
enum HeaderWord {
  kRows = 0,
  kSampled = 1,
  kPages = 2,
  kTicket = 3,
  kUnits = 4,      // + window
  kTileUnits = 8,  // + window: of these the ones of more than kFewRows rows
  kHeaderWords = 12
};

/// A float value: row r starts at data + r * stride.
struct Rows {
  float* data = nullptr;
  int32_t stride = 0;
};

/// Rows quantised by rule 2, one record a row, so that a row is one copy: the values of all blocks (32 bytes each, in
/// activation_slot order), then a float scale per block, then per block the sum of values 0-15 plus 65536 times the sum
/// of values 16-31.
struct Quantised {
  std::byte* data = nullptr;
  int32_t stride = 0;  // bytes of a record, a multiple of 16
  int32_t blocks = 0;
};
/// Routes of a step, grouped by expert: entries of at most `cap` routes, an expert's entries adjacent.
struct Group {
  int32_t* count;        // [1] entries
  int32_t* entries;      // [entries][kEntryHeader + cap]: expert, size, -, -, routes (row * top_k + slot)
  int32_t* slot_expert;  // [rows * top_k]
  float* slot_weight;    // [rows * top_k]
  int32_t* counter;      // [1] arrivals, zero between launches
  int32_t* counts;       // [experts] routes, zero between launches
  int32_t* places;       // [rows * top_k] of a route among its expert's
  int32_t* distinct;     // [1] experts with a route, summed over the layers of a step
};

struct BeginArgs {
  const int32_t* host;  // mapped: the arrays of Step in its order, back to back, as long as the header says
  Step step;
  int32_t* distinct;
};
void launch_begin(const BeginArgs& args, cudaStream_t stream);

/// One row at a time: base value (embedding, copied or gathered row), plus the experts' weighted sum, plus norm and
/// quantisation. What is null is left out.
struct RowArgs {
  Step step;
  int32_t width = 0;
  bool sampled = false;          // rows are the sampled rows
  bool gather = false;           // input row = sampled_rows[row]
  const float* table = nullptr;  // embedding [vocabulary, width], else `input`
  float table_scale = 1.0F;
  Rows input;
  const float* expert_output = nullptr;  // [rows * top_k, width], combined by slot_weight
  const float* slot_weight = nullptr;
  int32_t top_k = 0;
  Rows addend;   // added to the base (or to the combination when `input` is null)
  Rows sum_out;  // base + ... before the norm
  bool norm = false;
  const float* norm_weight = nullptr;
  float eps = 0;
  Rows norm_out;
  Quantised quantised;
};
void launch_rows(const RowArgs& args, int sms, cudaStream_t stream);

/// Elementwise operations on whole values.
enum class Elementwise : int32_t {
  add,
  gate_silu,
  gate_gelu,
  gate_clamped_swiglu,
  scale_one,
  scale_columns,
  softcap,
  group_norm,
  rope_half,
  rope_adjacent
};
struct ElementwiseArgs {
  Step step;
  Elementwise kind = Elementwise::add;
  bool sampled = false;
  int32_t width = 0;
  Rows a, b, out;
  const float* factors = nullptr;
  float cap = 0;
  int32_t group = 0;  // group_norm: values that share a norm; rope: head_dim
  float eps = 0;
  const float* cosines = nullptr;
  const float* sines = nullptr;
  int32_t pairs = 0, rotary = 0;
};
void launch_elementwise(const ElementwiseArgs& args, int sms, cudaStream_t stream);

enum class CacheType : int32_t { f32, f16, bf16, q8_0 };

/// Norm, rope and cache append of one layer's heads. Device page layout per (page, kv head): K [head_dim / chunk][32
/// positions][chunk], chunk = 16 bytes of values; V [32 positions][head_dim]. q8_0: see attention_q8.cu.
struct HeadInput {
  Rows rows;
  int32_t heads = 0;
  bool norm = false;
  const float* norm_weight = nullptr;
  float eps = 0;
  const float* cosines = nullptr;  // null: no rope
  const float* sines = nullptr;
  int32_t pairs = 0, rotary = 0;
  bool adjacent = false;
};
struct HeadsArgs {
  Step step;
  HeadInput q, k, v;
  int32_t head_dim = 0;
  CacheType cache = CacheType::f16;
  std::byte* keys = nullptr;  // this layer's pages
  std::byte* values = nullptr;
  float* q_out = nullptr;  // [rows, heads, head_dim]
};
void launch_heads(const HeadsArgs& args, int sms, cudaStream_t stream);

struct AttentionArgs {
  Step step;
  const float* q = nullptr;  // [rows, heads, head_dim]
  int32_t heads = 0, kv_heads = 0, head_dim = 0, window = 0, window_index = 0;
  float scale = 1;
  const float* sinks = nullptr;  // [heads] scores without a value, or null
  CacheType cache = CacheType::f16;
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  /// Every sequence has one row: `q` is not used; norm, rope and append happen here.
  bool fused = false;
  HeadInput new_q, new_k, new_v;
  float* partial = nullptr;      // [rows' splits, heads, kPartialHead + head_dim]
  int32_t* counters = nullptr;   // [rows * heads], zero between launches
  int32_t* next_item = nullptr;  // [1], zero between launches
  Rows out;                      // may be null
  Quantised quantised;           // may be null
};
void launch_attention(const AttentionArgs& args, int sms, cudaStream_t stream);
/// Whether heads of this shape, without sinks, can use launch_attention_group; the cache must be f16 or bf16, and units
/// have several rows unless `fused`.
bool attention_groups(const AttentionArgs& args);
/// The most rows of a unit for launch_attention_group.
int attention_group_rows(const AttentionArgs& args);
/// Units of more than kFewRows rows, which come first; launch_attention_group has the others.
void launch_attention_tile(const AttentionArgs& args, int sms, cudaStream_t stream);
void launch_attention_group(const AttentionArgs& args, int sms, cudaStream_t stream);
/// `fused` steps of one row with at most four splits: a cluster of blocks has them, and they meet in its memory.
bool attention_few_fits(const AttentionArgs& args);
void launch_attention_few(const AttentionArgs& args, int sms, cudaStream_t stream);
/// Both for a q8_0 cache, never `fused`.
void launch_heads_q8(const HeadsArgs& args, int sms, cudaStream_t stream);
void launch_attention_q8(const AttentionArgs& args, int sms, cudaStream_t stream);
size_t scaled_page_half_bytes(int kv_heads, int head_dim);
/// Whether heads of this size can be `fused`.
bool attention_fuses(CacheType type, int head_dim);
/// Bytes of one layer's K (or V) of one page.
size_t page_half_bytes(CacheType type, int kv_heads, int head_dim);
/// Reads `bytes` (a multiple of 16) of device memory; `out`: a word that is written if all of it is ones.
void launch_read(const std::byte* data, size_t bytes, int32_t* out, int sms, cudaStream_t stream);
void launch_copy_page(std::byte* base, size_t page_bytes, int from, int to, cudaStream_t stream);

/// dot16 of float weights: out [rows, outputs]; weights packed as [outputs][K / 64][16 lanes][4].
struct FloatLinearArgs {
  Step step;
  bool sampled = false;
  const float* weights = nullptr;
  int32_t outputs = 0, k = 0;
  Rows input;
  const float* bias = nullptr;
  Rows out;
};
void launch_float_linear(const FloatLinearArgs& args, int sms, cudaStream_t stream);
/// The same for steps of many rows.
void launch_float_tiles(const FloatLinearArgs& args, int sms, cudaStream_t stream);

/// Router: logits, softmax, top k, grouping. When `norm` is set the input is normalised first, and the normalised row
/// is written to `quantised` and `norm_out` (each if not null).
struct RouteArgs {
  Step step;
  const float* weights = nullptr;  // packed as FloatLinearArgs
  int32_t experts = 0, k = 0, top_k = 0;
  bool renormalise = true;
  const float* bias = nullptr;  // [experts], added to the logits
  const float* expert_scale = nullptr;
  int32_t cap = 8;
  Rows input;
  bool norm = false;
  const float* norm_weight = nullptr;
  float eps = 0;
  Rows norm_out;
  Quantised quantised;
  float* logits = nullptr;  // [rows, experts]
  Group group;
};
/// Norm and logits of at most 8 rows.
void launch_router(const RouteArgs& args, int sms, cudaStream_t stream);
/// From the logits on.
void launch_select(const RouteArgs& args, int sms, cudaStream_t stream);

enum class Mode : int32_t { dense, gate_up, down };
enum class Act : int32_t { silu, gelu_tanh, clamped_swiglu };
/// What experts add to the sums of gate and up, [experts][outputs] each; null: nothing.
struct PairBias {
  const float* gate = nullptr;
  const float* up = nullptr;
};

/// Dense layers of few rows, and every quantised layer of many rows.
struct LinearArgs {
  Step step;
  Group group;
  const std::byte* weights = nullptr;  // [experts][tiles][tile_bytes]
  Geometry geometry;
  int32_t outputs = 0;  // real rows of the matrix (of one of the pair)
  bool two_groups = false;
  bool sampled = false;
  int32_t top_k = 1;  // gate_up: input row = route / top_k
  Act act = Act::silu;
  Quantised input;
  const float* bias = nullptr;  // dense: [outputs]; down: [experts][outputs]
  PairBias pair_bias;           // gate_up
  Rows addend;                  // dense: added to the output
  Rows out;
  Quantised quantised;  // gate_up: act(gate x) * (up x), in whole blocks; null: in `out`
  int32_t slots = 2;    // ring slots; set by the launch
};
/// wide: layers take up to 32 columns at once, else 8.
void launch_stream(Format format, bool wide, const LinearArgs& args, int sms, cudaStream_t stream);
/// Whether K fits the shared memory of launch_stream.
bool stream_fits(Format format, const Geometry& geometry);
void launch_tiles(Format format, Mode mode, const LinearArgs& args, int sms, cudaStream_t stream);

/// Float weights by dot16: a dense layer, or one matrix (gate_up: two) of every route's expert; any K.
struct FloatMatrixArgs {
  Step step;
  Group group;
  const std::byte* weights = nullptr;     // [experts][outputs][row_bytes]
  const std::byte* up_weights = nullptr;  // gate_up: `weights` is gate
  int32_t row_bytes = 0, outputs = 0, k = 0;
  bool sampled = false;
  int32_t top_k = 1, cap = 8;  // of the routes' entries
  Act act = Act::silu;
  Rows input;                   // gate_up: row = route / top_k; down: row = route
  const float* bias = nullptr;  // dense: [outputs]; down: [experts][outputs]
  PairBias pair_bias;           // gate_up
  Rows out;                     // by row, or by route; gate_up: act(gate x) * (up x)
};
/// few: at most 8 rows in a step.
void launch_float_matrix(FloatType type, Mode mode, bool few, const FloatMatrixArgs& args, int sms,
                         cudaStream_t stream);

/// act(gate x) * (up x) of every route, quantised.
struct UpArgs {
  Step step;
  Group group;
  const std::byte* weights = nullptr;
  int64_t matrix_bytes = 0;  // of one expert
  int32_t tile_bytes = 0;
  int32_t units = 0;  // of 32 outputs: gate, up, gate, up tiles
  int32_t segment_blocks = 0;
  bool two_groups = false;
  int32_t top_k = 1;
  Act act = Act::silu;
  PairBias bias;
  bool early = false;  // at most 8 rows, whose input is older than the kernel before
  Quantised input;
  Quantised out;  // [routes]
  UpPlan plan;
};
void launch_up(Format format, const Geometry& geometry, const UpArgs& args, int sms, cudaStream_t stream);

/// small: the experts' weighted sum, and what is added to it; else the experts' outputs.
struct DownArgs {
  Step step;
  Group group;
  const std::byte* weights = nullptr;
  int64_t matrix_bytes = 0;
  int32_t tile_bytes = 0;
  int32_t outputs = 0;
  int32_t segments = 1, segment_blocks = 0;
  bool two_groups = false;
  int32_t top_k = 1;
  const float* bias = nullptr;  // [experts][outputs], or null
  Quantised input;              // [routes]
  Rows results;                 // [routes, outputs] scratch
  Rows addend;                  // may be null
  Rows out;
  DownPlan plan;
};
void launch_down(Format format, bool small, const Geometry& geometry, const DownArgs& args, int sms,
                 cudaStream_t stream);
/// Whether experts of these sizes fit the shared memory of launch_up and launch_down.
bool experts_fit(Format pair_format, const Geometry& pair, Format down_format, const Geometry& down);

/// Quantises [rows * each, blocks * 32] floats.
struct QuantiseArgs {
  Step step;
  bool sampled = false;
  int32_t each = 1;
  int32_t blocks = 0;
  Rows input;
  Quantised out;
};
void launch_quantise(const QuantiseArgs& args, int sms, cudaStream_t stream);

/// The id of the highest of each sampled row's logits, ties to the lower id.
struct ArgmaxArgs {
  Step step;
  const float* logits = nullptr;
  int32_t vocabulary = 0;
  unsigned long long* best = nullptr;  // [sampled] scratch, zero between launches
  int32_t* counters = nullptr;         // [sampled]
  int32_t* out = nullptr;              // [sampled], mapped host memory
};
void launch_argmax(const ArgmaxArgs& args, int sms, cudaStream_t stream);

/// The kTopLogits highest of each sampled row's logits: higher first, ties to the lower id, NaN before everything.
inline constexpr int32_t kTopLogits = 64;
struct TopArgs {
  Step step;
  const float* logits = nullptr;
  int32_t vocabulary = 0;
  int32_t* ids = nullptr;   // [sampled, kTopLogits], mapped host memory; -1 beyond the vocabulary
  float* values = nullptr;  // [sampled, kTopLogits], mapped host memory
};
void launch_top(const TopArgs& args, int sms, cudaStream_t stream);
/// Whether a vocabulary of this size fits the shared memory of launch_top.
bool top_fits(int32_t vocabulary);

}  // namespace cohort::cuda
