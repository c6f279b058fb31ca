// What only rows of canvases need: the mix of the embeddings of all tokens that a row may hold, its meeting with the
// row's own token, and the reading of a row's logits.
//
// Mix: a block has 64 rows by 64 columns and walks the vocabulary in ascending order, 32 tokens at a time, past those
// of which none of its rows thinks; weights and embeddings of the next 32 come while these are added. A thread has 4 x
// 4 sums, each a chain of fma in the order of the tokens. Bounds: fma where rows are unsure (most of the vocabulary
// counts), else the walk itself.
//
// Reading: a block a row, three passes over its logits. Bounds: exp and division on one SM; the chunks' sums meet in
// one thread.
#include "kernels/cuda/canvas.h"
#include "kernels/cuda/device.cuh"

namespace cohort::cuda {
namespace {

// ---- Mix.

constexpr int kMixThreads = 256, kMixRows = 64, kMixColumns = 64;
constexpr int kMixGap = kMixRows + 4;  // floats between tokens of the weights

struct MixShared {
  float weights[2][kThoughtGroup][kMixGap];
  float table[2][kThoughtGroup][kMixColumns];
  uint32_t tokens[3];  // of a group: those that a row holds; one is read, one filled, one cleared
  int32_t rows[kMixRows];
};

/// What a thread brings of a group: eight weights of a row and two times four columns.
struct MixPiece {
  float4 weights[2], table[2];
  uint32_t mark;
};

struct MixBlock {
  const MixArgs& args;
  MixShared& sh;
  const uint32_t* any;  // [mark_words] groups of which a row of the block thinks
  int tid, first_column;

  /// The first such group from `group` on, or -1.
  __device__ int next(int group) const {
    for (int word = group / 32; word < args.thoughts.mark_words; ++word, group = 0) {
      const uint32_t bits = any[word] & (0xffffffffU << (group % 32));
      if (bits != 0) return word * 32 + __ffs(static_cast<int>(bits)) - 1;
    }
    return -1;
  }
  __device__ void fetch(int group, MixPiece& piece) const {
    const Thoughts& t = args.thoughts;
    const int row = max(sh.rows[tid % kMixRows], 0), at = group * kThoughtGroup + tid / kMixRows * 8;
    const auto* weights = reinterpret_cast<const float4*>(t.weights + int64_t{row} * t.stride + at);
    piece.weights[0] = weights[0];
    piece.weights[1] = weights[1];
    piece.mark = t.marks[int64_t{row} * t.mark_words + group / 32] >> (group % 32) & 1U;
    const int column = min(first_column + tid % 16 * 4, args.width - 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = min(group * kThoughtGroup + tid / 16 + i * 16, args.vocabulary - 1);
      piece.table[i] = *reinterpret_cast<const float4*>(args.table + int64_t{token} * args.width + column);
    }
  }
  /// Leaves the piece in shared memory.
  __device__ void put(const MixPiece& piece, int buffer, int turn) const {
    const int row = tid % kMixRows, first = tid / kMixRows * 8;
    const bool there = sh.rows[row] >= 0 && piece.mark != 0;
    const float4 a = piece.weights[0], b = piece.weights[1];
    const float w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    uint32_t held = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float weight = there ? w[i] : 0.0F;
      if (weight != 0.0F) held |= 1U << (first + i);
      sh.weights[buffer][first + i][row] = weight;
    }
    held = __reduce_or_sync(kFullMask, held);
    if (tid % 32 == 0 && held != 0) atomicOr(&sh.tokens[turn], held);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      *reinterpret_cast<float4*>(&sh.table[buffer][tid / 16 + i * 16][tid % 16 * 4]) = piece.table[i];
  }
  __device__ void add_token(int buffer, int token, float (&s)[4][4]) const {
    const float4 w = *reinterpret_cast<const float4*>(&sh.weights[buffer][token][tid / 16 * 4]);
    const float4 e = *reinterpret_cast<const float4*>(&sh.table[buffer][token][tid % 16 * 4]);
    const float ws[4] = {w.x, w.y, w.z, w.w}, es[4] = {e.x, e.y, e.z, e.w};
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      if (ws[r] == 0.0F) continue;  // left out: not even the sign of a zero changes
#pragma unroll
      for (int c = 0; c < 4; ++c) s[r][c] = __fmaf_rn(ws[r], es[c], s[r][c]);
    }
  }
  __device__ void add_group(int buffer, uint32_t tokens, float (&s)[4][4]) const {
    if (tokens == 0xffffffffU) {
#pragma unroll 8
      for (int token = 0; token < kThoughtGroup; ++token) add_token(buffer, token, s);
      return;
    }
    for (; tokens != 0; tokens &= tokens - 1) add_token(buffer, __ffs(static_cast<int>(tokens)) - 1, s);
  }
};

__global__ void __launch_bounds__(kMixThreads, 2) mix_kernel(const __grid_constant__ MixArgs args) {
  extern __shared__ __align__(16) uint32_t any[];  // [mark_words]
  __shared__ __align__(16) MixShared sh;
  wait_and_pass_on();
  const int tid = static_cast<int>(threadIdx.x), rows = args.step.header[kRows];
  const int column_tiles = (args.width + kMixColumns - 1) / kMixColumns;
  const int items = (rows + kMixRows - 1) / kMixRows * column_tiles;
  for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
    const int first_row = item / column_tiles * kMixRows;
    __syncthreads();
    if (tid < kMixRows) sh.rows[tid] = first_row + tid < rows ? args.kinds[first_row + tid] : kNoCanvas;
    if (tid < 3) sh.tokens[tid] = 0;
    __syncthreads();
    for (int word = tid; word < args.thoughts.mark_words; word += kMixThreads) {
      uint32_t bits = 0;
#pragma unroll 8
      for (int row = 0; row < kMixRows; ++row) {
        const int32_t thought = sh.rows[row];
        if (thought >= 0) bits |= args.thoughts.marks[int64_t{thought} * args.thoughts.mark_words + word];
      }
      any[word] = bits;
    }
    __syncthreads();
    const MixBlock block{args, sh, any, tid, item % column_tiles * kMixColumns};
    float s[4][4] = {};
    MixPiece piece;
    int group = block.next(0);
    if (group >= 0) block.fetch(group, piece);
    for (int n = 0; group >= 0; ++n) {
      block.put(piece, n % 2, n % 3);
      __syncthreads();
      if (tid == 0) sh.tokens[(n + 2) % 3] = 0;  // read before this barrier, filled after the next one
      const uint32_t tokens = sh.tokens[n % 3];
      group = block.next(group + 1);
      if (group >= 0) block.fetch(group, piece);
      block.add_group(n % 2, tokens, s);
    }
    const int column = block.first_column + tid % 16 * 4;
    if (column >= args.width) continue;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = tid / 16 * 4 + r;
      if (first_row + row >= rows) break;
      const bool there = sh.rows[row] >= 0;
      float4 y;
      y.x = there ? __fmul_rn(s[r][0], args.scale) : 0.0F;
      y.y = there ? __fmul_rn(s[r][1], args.scale) : 0.0F;
      y.z = there ? __fmul_rn(s[r][2], args.scale) : 0.0F;
      y.w = there ? __fmul_rn(s[r][3], args.scale) : 0.0F;
      *reinterpret_cast<float4*>(args.out.data + int64_t{first_row + row} * args.out.stride + column) = y;
    }
  }
}

// ---- Condition.

constexpr int kConditionThreads = 256;

__global__ void __launch_bounds__(kConditionThreads) condition_kernel(const __grid_constant__ ConditionArgs args) {
  extern __shared__ __align__(16) float values[];  // [width]
  __shared__ float factor_shared;
  wait_and_pass_on();
  const int tid = static_cast<int>(threadIdx.x), rows = args.step.header[kRows];
  for (int row = static_cast<int>(blockIdx.x); row < rows; row += static_cast<int>(gridDim.x)) {
    const float* e = args.e.data + int64_t{row} * args.e.stride;
    const float* g = args.g.data + int64_t{row} * args.g.stride;
    float* out = args.out.data + int64_t{row} * args.out.stride;
    if (args.kinds[row] == kNoCanvas) {
      for (int i = tid; i < args.width; i += kConditionThreads) out[i] = e[i];
      continue;
    }
    __syncthreads();
    for (int i = tid; i < args.width; i += kConditionThreads) values[i] = __fadd_rn(e[i], g[i]);
    __syncthreads();
    if (tid < 32) {
      const float factor = norm_factor(squares16_shared(values, args.width, tid), args.width, args.eps);
      if (tid == 0) factor_shared = factor;
    }
    __syncthreads();
    for (int i = tid; i < args.width; i += kConditionThreads) out[i] = __fmul_rn(values[i], factor_shared);
  }
}

__global__ void __launch_bounds__(256) canvas_scale_kernel(const __grid_constant__ CanvasScaleArgs args) {
  wait_and_pass_on();
  const int rows = args.step.header[kRows];
  for (int row = static_cast<int>(blockIdx.x); row < rows; row += static_cast<int>(gridDim.x)) {
    const float* factors = args.kinds[row] == kNoCanvas ? args.factors : args.canvas_factors;
    const float* x = args.in.data + int64_t{row} * args.in.stride;
    float* y = args.out.data + int64_t{row} * args.out.stride;
    for (int i = static_cast<int>(threadIdx.x); i < args.width; i += 256)
      y[i] = __fmul_rn(x[i], factors[args.columns ? i : 0]);
  }
}

__global__ void begin_canvas_kernel(const __grid_constant__ BeginCanvasArgs args) {
  wait_and_pass_on();
  const int rows = args.step.header[kRows];
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < rows;
       i += static_cast<int>(gridDim.x * blockDim.x))
    args.kinds[i] = args.host[i];
}

// ---- Reading.

constexpr int kReadThreads = 512;
/// Tokens less likely than this are left out of a mixture (rule 10).
constexpr float kLeastWeight = 0x1p-25F;

struct Largest {
  float value;
  int token;
  /// Ties to the lower token; of threads that saw none the token is past the vocabulary.
  __device__ void meet(const Largest& other) {
    if (other.value > value || (other.value == value && other.token < token)) *this = other;
  }
};

/// The largest of a row's z = logit / temperature; false in `finite` when one is no number.
__device__ Largest find_largest(const float* logits, int vocabulary, float temperature, bool& finite) {
  __shared__ Largest warps[kReadThreads / 32];
  const int tid = static_cast<int>(threadIdx.x);
  Largest most{__int_as_float(0xff800000), vocabulary};
  bool good = true;
#pragma unroll 8
  for (int i = tid; i < vocabulary; i += kReadThreads) {
    const float z = __fdiv_rn(logits[i], temperature);
    good &= __fsub_rn(z, z) == 0.0F;
    if (z > most.value) most = {z, i};
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    most.meet({__shfl_xor_sync(kFullMask, most.value, offset), __shfl_xor_sync(kFullMask, most.token, offset)});
  }
  if (tid % 32 == 0) warps[tid / 32] = most;
  finite = __syncthreads_and(good ? 1 : 0) != 0;  // and all warps' are there
  for (const Largest& other : warps) most.meet(other);
  return most;
}

/// Sums of e = exp(z - maximum) and of e * (z - maximum) of each chunk: half a warp a chunk.
__device__ void weigh(const float* logits, int vocabulary, float temperature, float maximum, float* sums,
                      float* moments) {
  const int half = static_cast<int>(threadIdx.x) / 16, lane = static_cast<int>(threadIdx.x) % 16;
  const int chunks = (vocabulary + kThoughtChunk - 1) / kThoughtChunk;
  // Whole warps: the last one may have a chunk that is not there.
  for (int chunk = half; chunk - (half & 1) < chunks; chunk += kReadThreads / 16) {
    const int first = chunk * kThoughtChunk + lane;
    float x[kThoughtChunk / 16];  // asked for at once
#pragma unroll
    for (int k = 0; k < kThoughtChunk / 16; ++k) x[k] = first + k * 16 < vocabulary ? logits[first + k * 16] : 0.0F;
    float sum = 0.0F, moment = 0.0F;
#pragma unroll
    for (int k = 0; k < kThoughtChunk / 16; ++k) {
      const float d = __fsub_rn(__fdiv_rn(x[k], temperature), maximum);
      const float e = numerics::exp<Ops>(d);
      if (first + k * 16 >= vocabulary) continue;
      sum = __fadd_rn(sum, e);
      moment = __fmaf_rn(e, d, moment);
    }
    sum = tree16(sum);
    moment = tree16(moment);
    if (lane == 0 && chunk < chunks) {
      sums[chunk] = sum;
      moments[chunk] = moment;
    }
  }
}

/// What one thread learns from the chunks' sums.
struct Totals {
  float total, moment, inverse;
  float running, target;  // of the draw, before its chunk
  int chunk;              // of the draw; none: the chunks' number
};
__device__ Totals meet_chunks(const float* sums, const float* moments, int chunks, float u) {
  Totals t{};
  for (int chunk = 0; chunk < chunks; ++chunk) {
    t.total = __fadd_rn(t.total, sums[chunk]);
    t.moment = __fadd_rn(t.moment, moments[chunk]);
  }
  t.inverse = __fdiv_rn(1.0F, t.total);
  t.target = __fmul_rn(u, t.total);
  for (; t.chunk < chunks; ++t.chunk) {
    const float with = __fadd_rn(t.running, sums[t.chunk]);
    if (with > t.target) break;
    t.running = with;
  }
  return t;
}

/// Weights of at least kLeastWeight and their groups' marks: a warp a chunk, a lane a token of a group.
__device__ void keep(const ReadCanvasArgs& args, int thought, const float* logits, float temperature, float maximum,
                     float inverse, const float* sums) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const Thoughts& t = args.thoughts;
  float* weights = t.weights + int64_t{thought} * t.stride;
  auto* marks = reinterpret_cast<uint8_t*>(t.marks + int64_t{thought} * t.mark_words);  // a byte a chunk
  const int chunks = (args.vocabulary + kThoughtChunk - 1) / kThoughtChunk;
  for (int chunk = warp; chunk < t.mark_words * 4; chunk += kReadThreads / 32) {
    uint32_t bits = 0;
    // A sum of weights is no less than any of them.
    if (chunk < chunks && !(__fmul_rn(sums[chunk], inverse) < kLeastWeight)) {
#pragma unroll
      for (int group = 0; group < kThoughtChunk / kThoughtGroup; ++group) {
        const int i = chunk * kThoughtChunk + group * kThoughtGroup + lane;
        float weight = 0.0F;
        if (i < args.vocabulary)
          weight = __fmul_rn(numerics::exp<Ops>(__fsub_rn(__fdiv_rn(logits[i], temperature), maximum)), inverse);
        if (weight < kLeastWeight) weight = 0.0F;
        if (__ballot_sync(kFullMask, weight != 0.0F) == 0) continue;
        bits |= 1U << group;
        weights[i] = weight;
      }
    }
    if (lane == 0) marks[chunk] = static_cast<uint8_t>(bits);
  }
}

__global__ void __launch_bounds__(kReadThreads) read_canvas_kernel(const __grid_constant__ ReadCanvasArgs args) {
  extern __shared__ float sums[];  // [chunks] twice
  __shared__ float weights[kThoughtChunk];
  __shared__ Totals totals;
  wait_and_pass_on();
  const int tid = static_cast<int>(threadIdx.x), sampled = args.step.header[kSampled];
  const int chunks = (args.vocabulary + kThoughtChunk - 1) / kThoughtChunk;
  float* moments = sums + chunks;
  for (int row = static_cast<int>(blockIdx.x); row < sampled; row += static_cast<int>(gridDim.x)) {
    const CanvasTask task = args.tasks[row];
    const float temperature = task.rule.temperature;
    const float* logits = args.logits + int64_t{row} * args.vocabulary;
    __syncthreads();
    bool finite = true;
    const Largest most = find_largest(logits, args.vocabulary, temperature, finite);
    if (!finite) {
      if (tid == 0) args.readings[row] = {0, 0, 0.0F, 0.0F, false};
      continue;
    }
    weigh(logits, args.vocabulary, temperature, most.value, sums, moments);
    __syncthreads();
    if (tid == 0) totals = meet_chunks(sums, moments, chunks, task.rule.u);
    __syncthreads();
    const Totals t = totals;
    const int first = t.chunk * kThoughtChunk, count = min(kThoughtChunk, args.vocabulary - first);
    if (tid < count)
      weights[tid] = numerics::exp<Ops>(__fsub_rn(__fdiv_rn(logits[first + tid], temperature), most.value));
    __syncthreads();
    if (tid == 0) {
      int drawn = args.vocabulary - 1;
      if (t.chunk < chunks) {
        float running = t.running;
        int i = 0;
        for (; i < count - 1; ++i) {  // the chunk's sum may round above its running sum
          running = __fadd_rn(running, weights[i]);
          if (running > t.target) break;
        }
        drawn = first + i;
      }
      args.readings[row] = {most.token, drawn, t.total, t.moment, true};
    }
    keep(args, task.thought, logits, temperature, most.value, t.inverse, sums);
  }
}

// ---- Mixtures that come from the host.

__global__ void place_thoughts_kernel(Thoughts thoughts, int32_t first_row, const int32_t* begins,
                                      const ThoughtEntry* entries) {
  const int row = static_cast<int>(blockIdx.x);
  float* weights = thoughts.weights + int64_t{first_row + row} * thoughts.stride;
  uint32_t* marks = thoughts.marks + int64_t{first_row + row} * thoughts.mark_words;
  for (int i = begins[row] + static_cast<int>(threadIdx.x); i < begins[row + 1]; i += static_cast<int>(blockDim.x)) {
    const ThoughtEntry entry = entries[i];
    weights[entry.token] = entry.weight;
    const int group = entry.token / kThoughtGroup;
    atomicOr(&marks[group / 32], 1U << (group % 32));
  }
}

}  // namespace

Thoughts thoughts_of(int32_t vocabulary, int32_t rows) {
  Thoughts t;
  t.rows = rows;
  const int32_t chunks = (vocabulary + kThoughtChunk - 1) / kThoughtChunk;
  t.stride = chunks * kThoughtChunk;
  t.mark_words = (chunks + 3) / 4;
  return t;
}
size_t thought_bytes(const Thoughts& t) {
  return static_cast<size_t>(t.rows) * (static_cast<size_t>(t.stride) + static_cast<size_t>(t.mark_words)) * 4;
}

void launch_mix(const MixArgs& args, int sms, cudaStream_t stream) {
  const int tiles = (args.width + kMixColumns - 1) / kMixColumns;
  const int items = (args.step.max_rows + kMixRows - 1) / kMixRows * tiles;
  launch(&mix_kernel, items < sms * 2 ? items : sms * 2, kMixThreads, static_cast<size_t>(args.thoughts.mark_words) * 4,
         stream, args);
}
void launch_condition(const ConditionArgs& args, int sms, cudaStream_t stream) {
  const int most = sms * 4;
  launch(&condition_kernel, args.step.max_rows < most ? args.step.max_rows : most, kConditionThreads,
         static_cast<size_t>(args.width) * 4, stream, args);
}
void launch_canvas_scale(const CanvasScaleArgs& args, int sms, cudaStream_t stream) {
  const int most = sms * 8;
  launch(&canvas_scale_kernel, args.step.max_rows < most ? args.step.max_rows : most, 256, 0, stream, args);
}
void launch_begin_canvas(const BeginCanvasArgs& args, cudaStream_t stream) {
  launch(&begin_canvas_kernel, 8, 256, 0, stream, args);
}
void launch_read_canvas(const ReadCanvasArgs& args, int sms, cudaStream_t stream) {
  const auto chunks = static_cast<size_t>((args.vocabulary + kThoughtChunk - 1) / kThoughtChunk);
  launch(&read_canvas_kernel, sms * 2, kReadThreads, chunks * 2 * sizeof(float), stream, args);
}
void launch_place_thoughts(const Thoughts& thoughts, int32_t first_row, int32_t rows, const int32_t* begins,
                           const ThoughtEntry* entries, cudaStream_t stream) {
  place_thoughts_kernel<<<static_cast<unsigned>(rows), 256, 0, stream>>>(thoughts, first_row, begins, entries);
}

}  // namespace cohort::cuda
