// Several prompts continued together, and what is reported of them.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/engine.h"
#include "text/text_model.h"

namespace cohort::cli {

/// How `cohort run` continues prompts.
struct RunOptions {
  SamplingParams sampling;  // stream i uses seed + i
  int32_t tokens = 128;     // new ones of each stream; 0: what the context holds
  bool exact = false;  // who asked for so many gets an error when the context does not hold them; else it ends earlier
  bool ignore_eos = false;
  bool json = false;
};

/// Times and counts over all steps.
struct Totals {
  double prefill_seconds = 0, decode_seconds = 0, experts = 0;
  int64_t prefill_rows = 0, decode_rows = 0, decode_tokens = 0, decode_steps = 0;
  int64_t guesses = 0, right_guesses = 0;
  // Block diffusion: finished canvases, the steps that they took, their tokens, and the time of all steps.
  int64_t canvases = 0, canvas_steps = 0, tokens = 0;
  double seconds = 0;

  void add(const StepReport& report);
  double experts_per_step() const;
};

struct Stream {
  std::string prompt;
  std::vector<size_t> literal = {};  // EncodeOptions::literal of a prompt from a chat template
  std::vector<int32_t> tokens = {};  // generated
  std::string text = {};             // generated
  std::string finish_reason = {};    // of the engine, or "interrupted"
  std::string error = {};            // only when it failed
};

/// Gets stream's number and the text that it has grown by.
using ShowText = std::function<void(size_t stream, const std::string& piece)>;

/// Submits every prompt and steps until all are done, or until Ctrl-C (InterruptGuard) ends what is unfinished.
/// `rendered`: the prompts come from a chat template, so special tokens in them are meant and none is added.
Expected<Totals> run_streams(Engine& engine, const TextModel& text, const RunOptions& options, bool rendered,
                             std::vector<Stream>& streams, const ShowText& show);

/// "prefill 30 tokens at ..." on stderr.
void print_totals(const Engine& engine, const Totals& totals);
nlohmann::ordered_json to_json(const Stream& stream);
/// Adds the totals to `out`.
void add_totals(const Totals& totals, nlohmann::ordered_json& out);
/// Prints JSON on stdout, on one line when `indent` is negative.
void print_json(const nlohmann::ordered_json& json, int indent);

}  // namespace cohort::cli
