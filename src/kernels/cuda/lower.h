// A program as a list of kernel launches.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/canvas.h"
#include "kernels/cuda/flow.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/part.h"
#include "models/program.h"

namespace cohort::cuda {

/// Which kernels a captured graph uses, by the rows of a step.
enum class Variant { small /* at most 8 rows */, middle /* at most 32 */, wide /* at most 128 */, tiles };
inline constexpr int kVariants = 4;
inline constexpr int kSmallRows = 8, kMiddleRows = 32, kWideRows = 128;

struct Launcher {
  Variant variant = Variant::small;
  bool decode;            // every sequence has one row
  bool attention_groups;  // launch_attention_group
  bool one_row;           // of a decode step of few units
  FlowRows flow;          // which kernel runs all layers, if one does
  Step step;              // max_rows set for the variant
  int sms;
  cudaStream_t stream;
};
struct Launch {
  const char* kind;  // "gate_up", "attention", ...: what the profile groups by
  std::function<void(const Launcher&)> run;
};

/// The cache as the launches see it; filled by allocate_cache before anything runs.
struct CacheMemory {
  CacheType type = CacheType::f16;
  std::vector<std::byte*> keys, values;  // per cache layer
};

/// Launches [first, last) of a step of few rows as one kernel (flow.cuh, flow_rows.cuh).
struct FlowPlan {
  size_t first = 0, last = 0;
  Launch launch;
  FlowFormats formats = FlowFormats::q4;
  FlowArgs args;
  std::vector<FlowLayer> layers;
  std::vector<size_t> cache_layers;
  FlowLayer* device = nullptr;  // the layers there
  uint32_t* epoch = nullptr;
  bool ready = false;  // the cache is known and of a type that the kernel reads
};
/// After the cache was allocated anew.
Expected<void> set_flow_cache(FlowPlan& plan, const CacheMemory& cache);

struct Limits {
  int32_t rows = 2048;  // of one submission
  int32_t sampled = 256;
  int32_t units = 16384;  // (row, split) pairs of one window
  int32_t canvas = 0;     // rows of a canvas at most; 0: the program has none
  int32_t places = 0;     // canvases whose thoughts the device keeps
};
/// For steps of about max_rows rows of at most `streams` streams with canvases of at most `canvas` rows, of which each
/// runs in one submission, whatever it sees; canvas 0: there are none.
Limits limits_of(const Program& program, int32_t max_rows, int32_t canvas, int32_t streams);

/// What canvases need between steps.
struct CanvasMemory {
  int32_t* kinds = nullptr;         // [rows] of the step
  Thoughts thoughts;                // [places * canvas]
  ThoughtEntry* entries = nullptr;  // of some rows at a time, when they come from the host
  int32_t most_entries = 0;
  int32_t* begins = nullptr;  // [canvas + 1] into them
};

/// Experts that the host computes, and the mapped memory in which a step meets it.
struct HostPart {
  std::vector<std::vector<int32_t>> experts;  // [MoE layer], ascending; empty: all are on the device
  MeetingPlace place;
};
/// A layer of which the host computes experts. The launches before `resume` do not need it; that one brings its
/// results.
struct Visit {
  size_t layer = 0, resume = 0;
  int32_t top_k = 1, inputs = 0, outputs = 0;
};

struct Lowered {
  std::vector<Launch> launches;
  std::vector<int32_t> windows;  // distinct attention windows; index = Step::units
  float* logits = nullptr;       // [sampled, vocabulary]
  int32_t* distinct = nullptr;   // experts touched in the last step, over all layers
  int moe_layers = 0;
  bool attention_groups = true;    // all attention can use launch_attention_group
  int32_t group_rows = 64;         // then: most rows of a unit
  std::shared_ptr<FlowPlan> flow;  // null: not a program of that shape
  std::vector<Visit> visits;       // in the order of the step
  CanvasMemory canvases;           // of a program that has some
};

/// Uploads every weight of the program, less those experts that the host computes, and lowers it for a device of `sms`
/// multiprocessors. Errors name the tensor and the type or size that cannot run.
Expected<Lowered> lower(const Program& program, const Limits& limits, const CacheMemory& cache, DeviceMemory& memory,
                        Uploader& uploader, int sms, const HostPart& part);
/// Bytes that one expert takes on the device.
size_t device_expert_bytes(const op::Experts& experts);
/// Bytes that the kernel for all layers needs beside them, when a program of so many layers takes it.
size_t flow_bytes(size_t layers);

}  // namespace cohort::cuda
