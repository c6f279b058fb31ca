#include "cli/engine_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "base/counted.h"
#include "base/memory.h"
#include "cli/values.h"
#include "engine/limits.h"

namespace cohort::cli {

void add_engine_flags(CLI::App& command, EngineOptions& o) {
  command
      .add_option("-m,--model", o.model, "GGUF file (the first of a split), or folder with config.json and safetensors")
      ->required()
      ->type_name("FILE")
      ->envname("COHORT_MODEL");
  command
      .add_option("-c,--context", o.context,
                  "Positions a stream may have, prompt included (0: what the model was made for)")
      ->check(whole_number(0, kMaxContextOption))
      ->type_name("N")
      ->envname("COHORT_CONTEXT")
      ->capture_default_str();
  command.add_option("--np,--streams", o.max_streams, "Streams that may run together")
      ->check(whole_number(1, kMaxStreams))
      ->type_name("N")
      ->envname("COHORT_STREAMS")
      ->capture_default_str();
  command.add_option("--threads", o.threads, "Threads (0: one per core)")
      ->check(whole_number(0, kMaxThreads))
      ->type_name("N")
      ->envname("COHORT_THREADS")
      ->capture_default_str();
  command.add_option("--isa", o.isa, "Instruction set: auto, scalar, avx2, avx512, amx, neon")
      ->check(one_of({"auto", "scalar", "avx2", "avx512", "amx", "neon"}))
      ->type_name("NAME")
      ->envname("COHORT_ISA")
      ->capture_default_str();
  command
      .add_option("--device", o.device,
                  "auto (a CUDA device that can run the model, else the CPU), cpu, cuda or cuda:N")
      ->check(device_name())
      ->type_name("NAME")
      ->envname("COHORT_DEVICE")
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--device-memory",
          [&o](const std::string& text) { o.device_memory = static_cast<int64_t>(parse_bytes(text).value_or(0)); },
          "Memory of the CUDA device for weights, steps and KV cache, as 24G or 800M (0: what is free); experts that "
          "do not fit are computed by the CPU in host memory, with the same result")
      ->check(byte_size())
      ->type_name("SIZE")
      ->envname("COHORT_DEVICE_MEMORY");
  command
      .add_option(
          "--expert-counts", o.expert_counts,
          "Importance matrix (cohort imatrix): the experts that it counted most often stay on the device; without "
          "it those of the first layers")
      ->type_name("FILE")
      ->envname("COHORT_EXPERT_COUNTS");
  command.add_option("--kv-type", o.kv_type, "Type of the KV cache: f32, f16, bf16, q8_0")
      ->check(one_of({"f32", "f16", "bf16", "q8_0"}))
      ->type_name("TYPE")
      ->envname("COHORT_KV_TYPE")
      ->capture_default_str();
  command
      .add_option("--kv-positions", o.kv_positions,
                  "KV positions of all streams together, in whole pages (0: streams times context, as memory allows)")
      ->check(whole_number(0, kMaxKvPositions))
      ->type_name("N")
      ->envname("COHORT_KV_POSITIONS")
      ->capture_default_str();
  command.add_option("--prefill-rows", o.prefill_rows, "Prompt rows of one step, at most")
      ->check(whole_number(1, kMaxPrefillRows))
      ->type_name("N")
      ->envname("COHORT_PREFILL_ROWS")
      ->capture_default_str();
  command
      .add_option("--packed", o.packed,
                  "Packed weights on disk, for a quick start: off, auto (beside the model, written when missing or "
                  "stale), or the file that cohort pack wrote")
      ->type_name("off|auto|FILE")
      ->envname("COHORT_PACKED")
      ->capture_default_str();
  command
      .add_flag(
          "--no-batching", [&o](int64_t count) { o.batching = count <= 0; },
          "Run streams one by one; the bytes are the same, the speed is not")
      ->envname("COHORT_NO_BATCHING");
  command.add_option("--backend", o.backend, "fast, or reference: the slow scalar code that defines every bit")
      ->check(one_of({"fast", "reference"}))
      ->type_name("NAME")
      ->envname("COHORT_BACKEND")
      ->capture_default_str();
  command
      .add_option("--activations", o.activations, "With --backend reference, for validation: canonical, float, int8")
      ->check(one_of({"canonical", "float", "int8"}))
      ->type_name("NAME")
      ->envname("COHORT_ACTIVATIONS")
      ->capture_default_str();
  command.parse_complete_callback([&o] {
    if (o.activations == "canonical" || o.backend == "reference") return;
    throw CLI::ValidationError("--activations", fmt::format("'{}' is for validation and needs --backend reference; the "
                                                            "fast kernels have only canonical activations",
                                                            o.activations));
  });
}

void add_draft_flags(CLI::App& command, EngineOptions& o) {
  command
      .add_option("--draft", o.draft,
                  "Guess the next tokens and check several in one step; the answers stay the same: off, lookup (what "
                  "followed the same words earlier in the stream), or a small model with the same vocabulary")
      ->type_name("off|lookup|FILE")
      ->envname("COHORT_DRAFT")
      ->capture_default_str();
  command.add_option("--draft-tokens", o.draft_tokens, "Guesses of a stream in one step, at most")
      ->check(whole_number(1, kMaxDraftTokens))
      ->type_name("N")
      ->envname("COHORT_DRAFT_TOKENS")
      ->capture_default_str();
  command
      .add_flag("--draft-always", o.draft_always,
                "Guess so many in every step; else only where the measured times say that it is faster")
      ->envname("COHORT_DRAFT_ALWAYS");
}

void add_sampling_flags(CLI::App& command, SamplingParams& p) {
  command.add_option("--temp,--temperature", p.temperature, "Temperature; 0 takes the most likely token")
      ->check(number(0, kMaxTemperature))
      ->type_name("T")
      ->capture_default_str();
  command.add_option("--top-k", p.top_k, "Keep the K most likely tokens (0: all)")
      ->check(whole_number(0, kMaxTopK))
      ->type_name("K")
      ->capture_default_str();
  command.add_option("--top-p", p.top_p, "Keep the most likely tokens whose probabilities reach P (1: all)")
      ->check(number(0, 1))
      ->type_name("P")
      ->capture_default_str();
  command.add_option("--min-p", p.min_p, "Drop tokens less likely than P times the most likely (0: none)")
      ->check(number(0, 1))
      ->type_name("P")
      ->capture_default_str();
  command.add_option("--repeat-penalty", p.repeat_penalty, "Divide the logits of recent tokens (1: off)")
      ->check(number(kMinRepeatPenalty, kMaxRepeatPenalty))
      ->type_name("R")
      ->capture_default_str();
  command
      .add_option("--frequency-penalty", p.frequency_penalty,
                  "Lower the logits of recent tokens for each time they occurred")
      ->check(number(-kMaxPenalty, kMaxPenalty))
      ->type_name("F")
      ->capture_default_str();
  command.add_option("--presence-penalty", p.presence_penalty, "Lower the logits of recent tokens once")
      ->check(number(-kMaxPenalty, kMaxPenalty))
      ->type_name("F")
      ->capture_default_str();
  command.add_option("--repeat-last-n", p.penalty_window, "Recent tokens that penalties look at (-1: all)")
      ->check(whole_number(-1, kMaxPenaltyWindow))
      ->type_name("N")
      ->capture_default_str();
}

void add_diffusion_flags(CLI::App& command, EngineOptions& o) {
  DiffusionOptions& d = o.diffusion;
  command
      .add_option("--diffusion-steps", d.max_steps,
                  "Block diffusion: steps of a canvas, at most (default of these: what the model says)")
      ->check(whole_number(1, kMaxDiffusionSteps))
      ->type_name("N")
      ->envname("COHORT_DIFFUSION_STEPS");
  command.add_option("--diffusion-t-max", d.t_max, "Block diffusion: temperature of the first step")
      ->check(number(0, kMaxTemperature))
      ->type_name("T")
      ->envname("COHORT_DIFFUSION_T_MAX");
  command.add_option("--diffusion-t-min", d.t_min, "Block diffusion: temperature that the last steps come near to")
      ->check(number(0, kMaxTemperature))
      ->type_name("T")
      ->envname("COHORT_DIFFUSION_T_MIN");
  command
      .add_option("--diffusion-entropy-bound", d.entropy_bound,
                  "Block diffusion: how uncertain (nats, in sum) tokens may be that a step accepts beside the surest")
      ->check(number(0, static_cast<double>(kMaxEntropy)))
      ->type_name("H")
      ->envname("COHORT_DIFFUSION_ENTROPY_BOUND");
  command
      .add_option("--diffusion-stability", d.stability,
                  "Block diffusion: a canvas may end early when its likeliest tokens were the same in so many steps "
                  "before")
      ->check(whole_number(0, kMaxDiffusionSteps))
      ->type_name("N")
      ->envname("COHORT_DIFFUSION_STABILITY");
  command
      .add_option("--diffusion-confidence", d.confidence,
                  "Block diffusion: and when their mean entropy (nats) is below this")
      ->check(number(0, static_cast<double>(kMaxEntropy)))
      ->type_name("H")
      ->envname("COHORT_DIFFUSION_CONFIDENCE");
}

std::string token_filter(const CLI::App& command) {
  for (const char* name : {"--temp", "--top-k", "--top-p", "--min-p"}) {
    if (command.count(name) > 0) return name;
  }
  return {};
}

std::string canvas_note(const Engine& engine) {
  const DiffusionRules& rules = engine.diffusion();
  if (rules.canvas_length == 0) return {};
  return fmt::format("canvases of {}, at most {} each", counted(rules.canvas_length, "token"),
                     counted(rules.max_steps, "step"));
}

std::string kv_note(const EngineOptions& options, const Capacity& capacity) {
  const int64_t positions = int64_t{capacity.pages} * capacity.page_positions;
  if (options.kv_positions == 0 || options.kv_positions == positions) return {};
  return fmt::format("--kv-positions {} became {}: {} of {} positions", options.kv_positions, positions,
                     counted(capacity.pages, "whole page"), capacity.page_positions);
}

Expected<std::unique_ptr<Engine>> load_engine(const EngineOptions& options) {
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const auto progress = [&](std::string_view what, double fraction) {
    if (terminal) fmt::print(stderr, "\r\033[K{} {:3.0f}%", what, fraction * 100);
  };
  auto engine = Engine::create(options, progress);
  if (terminal) fmt::print(stderr, "\r\033[K");
  if (!engine) return engine;
  if (const std::string note = kv_note(options, (*engine)->capacity()); !note.empty())
    fmt::print(stderr, "note: {}\n", note);
  return engine;
}

}  // namespace cohort::cli
