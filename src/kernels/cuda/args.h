// What the kernels of the CUDA backend are told: plain structs, one per kernel, and the functions that launch them. All
// extents (rows, sampled rows, groups, positions) are read from device memory when the kernel runs, so one captured
// graph serves every batch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/layout.h"

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
  uint32_t* units[kMaxWindows];  // [units] row << 16 | split
  int32_t max_rows;              // most rows of a step of this graph: sizes grids, nothing else
};
enum HeaderWord { kRows = 0, kSampled = 1, kPages = 2, kUnits = 4 /* + window */, kHeaderWords = 8 };

/// A float value: row r starts at data + r * stride.
struct Rows {
  float* data = nullptr;
  int32_t stride = 0;
};

/// Rows quantised by rule 2: bytes in activation_slot order, one scale and the packed sums of both halves per block
/// (sum of values 0-15 plus 65536 times the sum of values 16-31).
struct Quantised {
  int8_t* values = nullptr;  // [rows, blocks * 32]
  float* scales = nullptr;   // [rows, blocks]
  int32_t* sums = nullptr;   // [rows, blocks]
};

/// Routes of a step, grouped by expert: entries of at most `cap` routes, an expert's entries adjacent.
struct Group {
  int32_t* count;        // [1] entries
  int32_t* expert;       // [entries]
  int32_t* begin;        // [entries] into routes
  int32_t* size;         // [entries]
  int32_t* routes;       // [rows * top_k] row * top_k + slot
  int32_t* slot_expert;  // [rows * top_k]
  float* slot_weight;    // [rows * top_k]
  int32_t* row_counter;  // arrival counters, zero between steps
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

enum class CacheType : int32_t { f32, f16, bf16 };

/// Norm, rope and cache append of one layer's heads. Device page layout per (page, kv head): K [head_dim / chunk][32
/// positions][chunk], chunk = 16 bytes of values; V [32 positions][head_dim].
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
  CacheType cache = CacheType::f16;
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  float* partial = nullptr;     // [units, heads, head_dim + 2]
  int32_t* counters = nullptr;  // [rows * heads], zero between launches
  Rows out;                     // may be null
  Quantised quantised;          // may be null
};
void launch_attention(const AttentionArgs& args, int sms, cudaStream_t stream);
/// Bytes of one layer's K (or V) of one page.
size_t page_half_bytes(CacheType type, int kv_heads, int head_dim);
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

/// Router: logits (unless given), softmax, top k, grouping. When `norm` is set the input is normalised first, and the
/// normalised row is written to `quantised` and `norm_out` (each if not null).
struct RouteArgs {
  Step step;
  const float* weights = nullptr;  // packed as FloatLinearArgs, or null: logits are ready
  int32_t experts = 0, k = 0, top_k = 0;
  bool renormalise = true;
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
void launch_route(const RouteArgs& args, int sms, cudaStream_t stream);

/// Every quantised linear layer, gate/up pair and down projection.
enum class Mode : int32_t { dense, gate_up, down };
enum class Act : int32_t { silu, gelu_tanh };
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
  Quantised input;   // dense and gate_up; down on tensor tiles
  Rows float_input;  // down of the streaming kernel: [routes, K] f32, quantised on the way in
  const float* bias = nullptr;
  Rows addend;  // dense: added to the output
  Rows out;
  int32_t slots = 2;  // ring slots; set by the launch
};
/// wide: dense layers take up to 32 columns at once, else 8. Experts always take 8.
void launch_stream(Format format, Mode mode, bool wide, const LinearArgs& args, int sms, cudaStream_t stream);
/// Whether K fits the shared memory of launch_stream.
bool stream_fits(const Geometry& geometry);
void launch_tiles(Format format, Mode mode, const LinearArgs& args, int sms, cudaStream_t stream);
/// Quantises [rows * per_row, blocks * 32] floats.
struct QuantiseArgs {
  Step step;
  bool sampled = false;
  int32_t per_row = 1;
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

}  // namespace cohort::cuda
