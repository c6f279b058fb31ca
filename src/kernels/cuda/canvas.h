// Canvases of block diffusion on the device (docs/NUMERICS.md, rule 10): what a step thinks of their rows stays there,
// as a weight for every token, until the next step mixes them.
#pragma once

#include "kernels/canvas_reader.h"
#include "kernels/cuda/args.h"

namespace cohort::cuda {

/// What a step knows of its rows [rows]: no row of a canvas; one of which nothing is thought yet; or its row of
/// Thoughts.
inline constexpr int kNoCanvas = -2, kNoThought = -1;

inline constexpr int kThoughtGroup = 32;   // tokens that share a mark
inline constexpr int kThoughtChunk = 256;  // tokens that share a sum, and a byte of marks

/// What rows were thought to hold: weights [rows, stride], of which only those in marked groups mean anything; there,
/// tokens that are left out have the weight 0. marks [rows, mark_words]: a bit a group.
struct Thoughts {
  float* weights = nullptr;
  uint32_t* marks = nullptr;
  int32_t rows = 0, stride = 0, mark_words = 0;
};
/// Of a vocabulary: `stride` and `mark_words`.
Thoughts thoughts_of(int32_t vocabulary, int32_t rows);
/// Bytes of its weights and marks.
size_t thought_bytes(const Thoughts& thoughts);

/// Copies what the host knows of the step's rows to the device, after launch_begin.
struct BeginCanvasArgs {
  Step step;
  const int32_t* host = nullptr;  // [rows], mapped host memory
  int32_t* kinds = nullptr;       // [rows]
};
void launch_begin_canvas(const BeginCanvasArgs& args, cudaStream_t stream);

/// op::Mix: out [rows, width] from the rows' thoughts; +0 where there are none.
struct MixArgs {
  Step step;
  const int32_t* kinds = nullptr;
  Thoughts thoughts;
  const float* table = nullptr;  // [vocabulary, width]
  int32_t vocabulary = 0, width = 0;
  float scale = 1;
  Rows out;
};
void launch_mix(const MixArgs& args, int sms, cudaStream_t stream);

/// op::Condition: rows of canvases become rms_norm(e + g) without a weight, others e.
struct ConditionArgs {
  Step step;
  const int32_t* kinds = nullptr;
  int32_t width = 0;
  float eps = 0;
  Rows e, g, out;
};
void launch_condition(const ConditionArgs& args, int sms, cudaStream_t stream);

/// op::Scale with other factors for the rows of canvases: one, or `width` of each.
struct CanvasScaleArgs {
  Step step;
  const int32_t* kinds = nullptr;
  int32_t width = 0;
  bool columns = false;
  const float* factors = nullptr;
  const float* canvas_factors = nullptr;
  Rows in, out;
};
void launch_canvas_scale(const CanvasScaleArgs& args, int sms, cudaStream_t stream);

/// How a sampled row is read, and the row of Thoughts that gets what it may hold.
struct CanvasTask {
  CanvasRule rule;
  int32_t thought = 0;
};
struct ReadCanvasArgs {
  Step step;
  const float* logits = nullptr;  // [sampled, vocabulary]
  int32_t vocabulary = 0;
  Thoughts thoughts;
  const CanvasTask* tasks = nullptr;  // [sampled], mapped host memory
  CanvasReading* readings = nullptr;  // [sampled], mapped host memory
};
void launch_read_canvas(const ReadCanvasArgs& args, int sms, cudaStream_t stream);

/// A token of a row's mixture.
struct ThoughtEntry {
  int32_t token;
  float weight;
};
/// Writes the mixtures of `rows` rows from `first_row` on, whose memory is zero. entries, and begins [rows + 1] into
/// them: device memory.
void launch_place_thoughts(const Thoughts& thoughts, int32_t first_row, int32_t rows, const int32_t* begins,
                           const ThoughtEntry* entries, cudaStream_t stream);

}  // namespace cohort::cuda
