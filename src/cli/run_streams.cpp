#include "cli/run_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/counted.h"
#include "base/result.h"
#include "cli/interrupt.h"
#include "engine/answer_room.h"
#include "models/model.h"

namespace cohort::cli {

void Totals::add(const StepReport& report) {
  guesses += report.guesses;
  right_guesses += report.right_guesses;
  canvases += report.canvases;
  canvas_steps += report.canvas_steps;
  tokens += static_cast<int64_t>(report.events.size());
  seconds += report.seconds;
  // A step that holds prompt rows counts as prefill: its time is theirs.
  if (report.prefill_rows > 0) {
    prefill_seconds += report.seconds;
    prefill_rows += report.prefill_rows;
    return;
  }
  decode_seconds += report.seconds;
  decode_rows += report.decode_rows;
  decode_tokens += static_cast<int64_t>(report.events.size());
  ++decode_steps;
  experts += report.distinct_experts;
}

double Totals::experts_per_step() const {
  return experts / static_cast<double>(std::max<int64_t>(decode_steps, 1));
}

namespace {

/// Tokens that the answer to a prompt of so many may have. Prompts that do not fit are the engine's to refuse.
Expected<int32_t> new_tokens(const Engine& engine, const RunOptions& options, int64_t prompt, size_t index) {
  const int64_t context = std::min<int64_t>(engine.model().context(), engine.kv_positions());
  const int64_t room = answer_room(engine.diffusion(), context - prompt);
  if (room < 1) return std::max(options.tokens, 1);
  if (options.tokens == 0) return static_cast<int32_t>(room);
  if (options.exact && options.tokens > room) {
    return fail(
        ErrorCode::invalid_argument,
        "prompt {}: {} (-n) after {} are {} positions{}; the context has {}: lower -n to at most {} (0: what fits); "
        "{}",
        index + 1, counted(options.tokens, "new token"), counted(prompt, "prompt token"),
        prompt + answer_positions(engine.diffusion(), options.tokens), in_canvases(engine.diffusion()), context, room,
        engine.model().longer_context());
  }
  return options.tokens;
}

}  // namespace

Expected<Totals> run_streams(Engine& engine, const TextModel& text, const RunOptions& options, bool rendered,
                             std::vector<Stream>& streams, const ShowText& show) {
  std::unordered_map<SequenceId, size_t> index;
  std::vector<text::Detokenizer> detokenizers;
  for (size_t i = 0; i < streams.size(); ++i) {
    SequenceRequest request;
    COHORT_ASSIGN(request.prompt, text.tokenizer.encode(streams[i].prompt, {.add_special = !rendered,
                                                                            .parse_special = rendered,
                                                                            .literal = streams[i].literal}));
    request.sampling = options.sampling;
    request.sampling.seed += i;
    COHORT_ASSIGN(request.max_tokens, new_tokens(engine, options, static_cast<int64_t>(request.prompt.size()), i));
    if (!options.ignore_eos) request.end_tokens = text.end_tokens();
    auto id = engine.submit(std::move(request));
    if (!id) {
      for (const auto& [submitted, ignored] : index) engine.cancel(submitted);
      return fail(id.error().code, "prompt {}: {}", i + 1, id.error().message);
    }
    index[*id] = i;
    detokenizers.emplace_back(text.tokenizer, text::Detokenizer::Options{.skip_special = true, .at_start = false});
  }
  Totals totals;
  while (!engine.idle() && !InterruptGuard::interrupted()) {
    COHORT_ASSIGN(const StepReport report, engine.step());
    totals.add(report);
    for (const TokenEvent& event : report.events) {
      const size_t i = index.at(event.sequence);
      Stream& s = streams[i];
      s.error = event.error.message;
      if (event.finish != FinishReason::none) s.finish_reason = to_string(event.finish);
      if (event.finish == FinishReason::failed) continue;
      s.tokens.push_back(event.sample.token);
      std::string piece;
      if (event.finish != FinishReason::end_token) piece = detokenizers[i].push(event.sample.token);
      if (event.finish != FinishReason::none) piece += detokenizers[i].finish();
      s.text += piece;
      show(i, piece);
    }
  }
  for (const auto& [id, i] : index) {
    if (!streams[i].finish_reason.empty()) continue;
    engine.cancel(id);
    streams[i].finish_reason = "interrupted";
    const std::string rest = detokenizers[i].finish();
    streams[i].text += rest;
    show(i, rest);
  }
  return totals;
}

void print_totals(const Engine& engine, const Totals& t) {
  const auto rate = [](int64_t count, double seconds) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
  };
  std::fflush(stdout);  // the texts come before their totals, also into one pipe
  if (engine.diffusion().canvas_length > 0) {
    fmt::print(stderr, "{} in {} of {} rows, {:.1f} steps each: {:.2f} tok/s, {:.1f} rows a step ({})\n",
               counted(t.tokens, "token"), t.canvases == 1 ? "1 canvas" : fmt::format("{} canvases", t.canvases),
               engine.diffusion().canvas_length,
               static_cast<double>(t.canvas_steps) / static_cast<double>(std::max<int64_t>(t.canvases, 1)),
               rate(t.tokens, t.seconds),
               static_cast<double>(t.decode_rows) / static_cast<double>(std::max<int64_t>(t.decode_steps, 1)),
               engine.description());
    return;
  }
  fmt::print(stderr, "prefill {} at {:.0f} tok/s; decode {} at {:.0f} tok/s, {:.1f} rows a step",
             counted(t.prefill_rows, "token"), rate(t.prefill_rows, t.prefill_seconds),
             counted(t.decode_tokens, "token"), rate(t.decode_tokens, t.decode_seconds),
             static_cast<double>(t.decode_rows) / static_cast<double>(std::max<int64_t>(t.decode_steps, 1)));
  if (engine.model().config().experts > 0) {
    fmt::print(stderr, ", {:.1f} of {} experts a step", t.experts_per_step(), engine.model().config().experts);
  }
  if (!engine.draft().empty()) fmt::print(stderr, ", {} of {} guesses right", t.right_guesses, t.guesses);
  fmt::print(stderr, " ({})\n", engine.description());
}

nlohmann::ordered_json to_json(const Stream& s) {
  nlohmann::ordered_json one{
      {"prompt", s.prompt}, {"text", s.text}, {"tokens", s.tokens}, {"finish_reason", s.finish_reason}};
  if (!s.error.empty()) one["error"] = s.error;
  return one;
}

void add_totals(const Totals& t, nlohmann::ordered_json& out) {
  out["prefill_tokens"] = t.prefill_rows;
  out["prefill_seconds"] = t.prefill_seconds;
  out["decode_tokens"] = t.decode_tokens;
  out["decode_seconds"] = t.decode_seconds;
  out["decode_steps"] = t.decode_steps;
  out["distinct_experts"] = t.experts_per_step();
  if (t.canvases > 0) out["canvases"] = {{"finished", t.canvases}, {"steps", t.canvas_steps}, {"seconds", t.seconds}};
  if (t.guesses > 0) out["guesses"] = {{"checked", t.guesses}, {"right", t.right_guesses}};
}

void print_json(const nlohmann::ordered_json& json, int indent) {
  fmt::print("{}\n", json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  std::fflush(stdout);
}

}  // namespace cohort::cli
