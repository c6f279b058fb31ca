// The engine: a loaded model, its KV pages, and the sequences that step through it together.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/constraint.h"
#include "cohort/error.h"
#include "cohort/sampling.h"

namespace cohort {

class Model;
using SequenceId = uint64_t;

/// fraction in [0, 1] of what is being done ("packing weights").
using ProgressCallback = std::function<void(std::string_view what, double fraction)>;

struct EngineOptions {
  std::filesystem::path model;
  int32_t context = 0;           // positions a sequence may have; 0 = what the model was made for, at most 32768
  int32_t max_streams = 16;      // sequences that may be in flight together; KV pages are made for so many
  int64_t kv_positions = 0;      // positions of KV memory in all; 0 = max_streams * context, at most what fits
  std::string kv_type = "f16";   // f32, f16, bf16, q8_0
  int32_t prefill_rows = 512;    // rows of one step that may belong to prompts
  double prefill_stall_ms = 0;   // how much longer a step of decoding streams may take because of prompts; 0 = as long
                                 // as the step itself takes
  double priority_aging_s = 30;  // seconds of waiting that are worth one level of priority; 0 = no waiting is
  bool prefix_cache = true;      // keep pages of ended streams and share them with streams that begin alike
  int32_t threads = 0;           // 0 = one per core
  std::string isa = "auto";      // auto, scalar, avx2, avx512, amx, neon
  std::string device = "auto";   // auto, cpu, cuda, cuda:N
  int64_t device_memory = 0;     // bytes of the device for weights, steps and cache; 0 = what is free. Experts beyond
                                 // them lie in host memory, where the CPU computes them
  std::filesystem::path expert_counts;  // importance matrix that says which experts are chosen often: those stay on the
                                        // device; empty: those of the first layers
  std::string backend = "fast";         // fast, or reference (the scalar oracle)
  std::string activations = "canonical";  // validation of the reference: float, int8
  std::string packed = "off";  // packed weights on disk: off, auto (beside the model, written when missing or stale),
                               // or the file that `cohort pack` wrote
  std::string draft = "off";   // who guesses tokens, so that a step can check several: off, lookup (what followed the
                               // same tokens earlier in the stream), or a small model with the same vocabulary
  int32_t draft_tokens = 4;    // guesses of a stream in one step, at most
  bool draft_always = false;   // guess so many in every step, even where that is slower
  DiffusionOptions diffusion;  // for models of block diffusion: what the model's own rules should be instead
  bool batching = true;        // false: streams run one by one; the bytes are the same
};

/// complete: the sequence's constraint allows nothing more.
enum class FinishReason { none, end_token, complete, length, context, cancelled, failed };
std::string_view to_string(FinishReason reason);

struct TokenEvent {
  SequenceId sequence = 0;
  int32_t index = 0;  // of the generated token
  Sample sample;
  FinishReason finish = FinishReason::none;  // the sequence ended with this token (an end token is reported, too)
  bool guessed = false;                      // it had been guessed, and came in the same step as the one before it
  int32_t reused = 0;                        // positions of the prompt that came from the prefix cache
  Error error;                               // only when failed
};

/// What one step did.
struct StepReport {
  double seconds = 0;
  int64_t rows = 0, prefill_rows = 0, decode_rows = 0;  // guesses are decode rows
  int64_t guesses = 0, right_guesses = 0;               // that were checked; of those, how many were the next token
  double distinct_experts = 0;                          // mean over MoE layers, 0 for dense models
  double bytes = 0;  // weights that had to be read: dense once, each distinct expert once
  std::vector<uint32_t>
      routes;  // [MoE layers, experts] rows that chose each expert; empty where the device does not say
  int64_t canvases = 0, canvas_steps = 0;  // that were finished in this step, and the steps that those took in all
  int64_t prompt_tokens = 0;               // of the sequences whose first token came with this step
  int64_t reused_tokens = 0;               // of those, from the prefix cache
  int64_t preemptions = 0;                 // sequences that lost their pages and will be read again
  std::vector<TokenEvent> events;
};

struct Capacity {
  int32_t context = 0, max_streams = 0;
  int32_t pages = 0;
  int32_t free_pages = 0;      // pages that no sequence holds
  int32_t reusable_pages = 0;  // of those, pages that the prefix cache has filled
  int32_t page_positions = 0;
  size_t page_bytes = 0, weight_bytes = 0;
};

struct SequenceRequest {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  int32_t max_tokens = 128;
  int32_t priority = 0;                          // lower goes first; decides when tokens come, never which
  std::vector<int32_t> end_tokens;               // generation stops after one of these
  std::shared_ptr<const Constraint> constraint;  // null: any token may come
};

/// A running sequence at a moment.
struct SequenceStatus {
  SequenceId id = 0;
  int32_t prompt = 0, generated = 0;  // tokens
  int32_t cached = 0;                 // positions in the KV cache
  int32_t pages = 0;
  bool decoding = false;  // false: its prompt is being read
  int32_t priority = 0;
};

/// Not thread-safe: one thread submits, steps and cancels (the server owns that thread).
class Engine {
 public:
  /// Loads the model and packs its weights. Errors name the file or option, the value and the limit; nothing large is
  /// allocated before the options have been checked.
  static Expected<std::unique_ptr<Engine>> create(const EngineOptions& options, const ProgressCallback& progress = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// What submit() would say, without queueing anything. Depends on nothing that changes: any thread may ask.
  Expected<void> check(const SequenceRequest& request) const;
  /// Queues a sequence. invalid_argument: empty prompt, ids outside of the vocabulary, sampling or priority out of
  /// range; capacity: prompt + 1 (with block diffusion: prompt + a canvas) does not fit the context, or prompt +
  /// max_tokens more than all KV pages. A model of block diffusion samples by its own rules: of the sampling only seed
  /// and stream count, and what asks for a distribution of single tokens (penalties, logit_bias, logprobs, a
  /// constraint) is unsupported.
  Expected<SequenceId> submit(SequenceRequest request);
  /// Frees the sequence's pages now; unknown and finished ids are ignored.
  void cancel(SequenceId id);
  bool idle() const;
  size_t waiting() const;
  /// How many wait, by priority; those of which none waits are absent.
  const std::map<int32_t, size_t>& waiting_by_priority() const;
  size_t running() const;

  /// One fused forward over the rows of all streams that can run, then sampling. An error means the device failed; a
  /// stream's own failure is an event.
  Expected<StepReport> step();
  /// The logits [vocabulary] from which the last step's event was sampled; empty where a device chose the largest ones,
  /// and with block diffusion; for tests and tools.
  std::span<const float> logits_of(size_t event) const;

  /// Running sequences, the one that goes first in front: by priority, then by arrival
  /// (EngineOptions::priority_aging_s).
  std::vector<SequenceStatus> sequences() const;

  const Model& model() const;
  /// KV positions of all sequences together; never changes.
  int64_t kv_positions() const;
  Capacity capacity() const;
  /// "cpu avx512, 2 threads"
  std::string description() const;
  /// "at most 4 guessed tokens a step from lookup"; empty: nothing is guessed.
  std::string draft() const;
  /// How canvases are denoised; canvas_length 0: the model makes one token after another.
  const DiffusionRules& diffusion() const;
  /// Bytes a second that the device reads from its own memory, measured now; 0: weights lie in the host's memory. Not
  /// while a step runs.
  double device_bandwidth() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
