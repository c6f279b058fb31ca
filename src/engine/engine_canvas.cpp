// Steps of block diffusion: schedule -> run -> denoise. In one step run the whole canvas of every sequence whose tokens
// are all in the cache, and beside them the rows of those that are read: prompts, finished canvases, what was
// preempted.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/result.h"
#include "engine/answer_room.h"
#include "engine/engine_impl.h"

namespace cohort {

Expected<void> Engine::Impl::check_diffusion(const SequenceRequest& request) const {
  const SamplingParams& p = request.sampling;
  const auto refuse = [](std::string_view what) {
    return fail(ErrorCode::unsupported,
                "{} asks for tokens one after another; this model denoises many together (block diffusion): leave it "
                "out",
                what);
  };
  if (request.constraint != nullptr) return refuse("a grammar or schema");
  if (p.logprobs >= 0) return refuse("logprobs");
  if (!p.logit_bias.empty()) return refuse("logit_bias");
  if (p.repeat_penalty != 1.0F) return refuse("repeat_penalty");
  if (p.frequency_penalty != 0.0F) return refuse("frequency_penalty");
  if (p.presence_penalty != 0.0F) return refuse("presence_penalty");
  return {};
}

/// That it may come to need: whole canvases, however few of their tokens are wanted.
int64_t Engine::Impl::positions_of(const SequenceRequest& request) const {
  const int64_t answer = answer_positions(rules, request.max_tokens);
  return std::min<int64_t>(static_cast<int64_t>(request.prompt.size()) + answer, model->context());
}

/// Makes the canvases that are missing. All rows of a canvas are sampled, no others.
Batch Engine::Impl::make_canvas_batch(std::span<const int32_t> rows) {
  Batch batch;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0) continue;
    Sequence& s = roster->running()[i];
    const bool denoising = s.denoising();
    if (denoising && s.canvas == nullptr) {
      const CanvasRandom random{s.request.sampling.seed, s.request.sampling.stream};
      s.canvas = std::make_unique<Canvas>(rules, random, s.size(), vocabulary());
      if (reader != nullptr) s.place = places.take();  // there are as many as sequences run
    }
    batch.sequences.push_back({batch.rows(), rows[i], s.cached, s.pages, denoising,
                               denoising && reader == nullptr ? s.canvas->mixtures() : std::span<const Mixture>()});
    const auto tokens =
        denoising ? s.canvas->tokens() : std::span<const int32_t>(s.tokens).subspan(static_cast<size_t>(s.cached));
    for (int32_t r = 0; r < rows[i]; ++r) {
      if (denoising) batch.sampled_rows.push_back(batch.rows());
      batch.tokens.push_back(tokens[static_cast<size_t>(r)]);
      batch.positions.push_back(s.cached + r);
    }
  }
  return batch;
}

/// Runs the step; what it says of the canvases' rows is then in readings, or in logits.
Expected<StepStats> Engine::Impl::run_canvases(const Batch& batch, std::span<const int32_t> rows) {
  if (reader == nullptr) return run_whole_logits(batch);
  std::vector<CanvasPlace> at;
  std::vector<CanvasRule> how;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0) continue;
    const Sequence& s = roster->running()[i];
    at.emplace_back();
    if (!s.denoising()) continue;
    at.back() = {s.place.index(), s.canvas->steps() > 0};
    for (int32_t row = 0; row < rows[i]; ++row) how.push_back(s.canvas->rule(row));
  }
  readings.assign(batch.sampled_rows.size(), {});
  if (options.batching) return reader->run_canvases(batch, at, how, readings);
  return run_one_by_one(batch, [&](const Batch& one, size_t sequence, size_t sampled) {
    const size_t count = one.sampled_rows.size();
    return reader->run_canvases(one, std::span(at).subspan(sequence, 1), std::span(how).subspan(sampled, count),
                                std::span(readings).subspan(sampled, count));
  });
}

/// sampled: the row's place among the sampled ones.
Expected<CanvasRow> Engine::Impl::read_row(const Canvas& canvas, int32_t row, size_t sampled) {
  if (reader != nullptr) return canvas_row_of(readings[sampled], canvas.rule(row).temperature);
  const auto width = static_cast<size_t>(vocabulary());
  return canvas.read(row, std::span(logits).subspan(sampled * width, width));
}

/// What the step says of the canvases of `sequences` (indices of running ones). Each row depends on its own logits
/// alone, so they are spread over threads.
std::vector<Expected<void>> Engine::Impl::read_canvases(std::span<const size_t> sequences) {
  const auto length = static_cast<size_t>(rules.canvas_length);
  for (const size_t sequence : sequences) roster->running()[sequence].canvas->forget_mixtures();
  std::vector<CanvasRow> rows(sequences.size() * length);
  std::vector<Expected<void>> results(rows.size());
  samplers->run(static_cast<int64_t>(rows.size()), [&](int64_t k, int) {
    const auto at = static_cast<size_t>(k);
    auto row = read_row(*roster->running()[sequences[at / length]].canvas, static_cast<int32_t>(at % length), at);
    if (row) {
      rows[at] = std::move(*row);
    } else {
      results[at] = tl::unexpected<Error>(row.error());
    }
  });
  std::vector<Expected<void>> out(sequences.size());
  for (size_t k = 0; k < sequences.size(); ++k) {
    for (size_t r = 0; r < length && out[k]; ++r) out[k] = results[k * length + r];
    if (!out[k]) continue;
    const auto first = rows.begin() + static_cast<std::ptrdiff_t>(k * length);
    roster->running()[sequences[k]].canvas->settle(
        {std::make_move_iterator(first), std::make_move_iterator(first + static_cast<std::ptrdiff_t>(length))});
  }
  return out;
}

/// The tokens of a finished canvas, up to the first end token and no more than are wanted.
void Engine::Impl::commit(Sequence& s, Expected<void> read, StepReport& report) {
  if (!read) {
    report.events.push_back(advance(s, tl::unexpected<Error>(read.error())));
    return;
  }
  if (!s.canvas->done()) return;
  const auto canvas = std::move(s.canvas);
  s.place = {};
  ++report.canvases;
  report.canvas_steps += canvas->steps();
  if (s.generated() == 0) {
    report.prompt_tokens += s.prompt_size();
    report.reused_tokens += s.reused;
  }
  for (const int32_t token : canvas->best()) {
    Sample sample;
    sample.token = token;
    report.events.push_back(advance(s, std::move(sample)));
    if (report.events.back().finish != FinishReason::none) return;
  }
  if (s.size() + rules.canvas_length > model->context()) report.events.back().finish = FinishReason::context;
}

Expected<StepReport> Engine::Impl::canvas_step() {
  const auto start = std::chrono::steady_clock::now();
  StepReport report;
  report.preemptions = -roster->preemptions();
  const std::vector<int32_t> rows = roster->plan(budget);
  report.preemptions += roster->preemptions();
  const Batch batch = make_canvas_batch(rows);
  event_rows.clear();
  if (batch.rows() == 0) return report;
  COHORT_ASSIGN(StepStats stats, run_canvases(batch, rows));
  report.rows = batch.rows();
  report.distinct_experts = stats.distinct_experts;
  report.bytes = stats.bytes;
  report.routes = std::move(stats.routes);

  std::vector<size_t> canvases;  // running sequences, in the order of their logits
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0) continue;
    if (roster->running()[i].denoising()) {
      report.decode_rows += rows[i];
      canvases.push_back(i);
    } else {
      report.prefill_rows += rows[i];
      roster->ran(i, rows[i]);
    }
  }
  std::vector<Expected<void>> read = read_canvases(canvases);
  std::vector<SequenceId> ended;
  for (size_t k = 0; k < canvases.size(); ++k) {
    Sequence& s = roster->running()[canvases[k]];
    const size_t before = report.events.size();
    commit(s, std::move(read[k]), report);
    if (report.events.size() > before && report.events.back().finish != FinishReason::none) ended.push_back(s.id);
  }
  for (const SequenceId id : ended) roster->remove(id);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  budget.observe(report.prefill_rows, static_cast<int64_t>(canvases.size()), report.seconds);
  return report;
}

}  // namespace cohort
