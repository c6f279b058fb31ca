// What an engine holds, and the parts of a step. Private to the engine's own files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "cohort/engine.h"
#include "engine/roster.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/speculator.h"
#include "kernels/backend.h"
#include "models/model.h"

namespace cohort {

/// The rows of a sequence whose logits a step gave, and what became of them.
struct Window {
  size_t first_row = 0;  // among the sampled ones
  std::vector<TokenEvent> events;
};

struct Engine::Impl {
  EngineOptions options;
  std::unique_ptr<Model> model;
  std::unique_ptr<Backend> backend;
  CanvasReader* reader = nullptr;            // the backend, where it reads canvases itself
  CanvasPlaces places;                       // then: where it keeps them
  std::string note;                          // about the choice of the device
  std::unique_ptr<ThreadTeam> own_samplers;  // when the backend has no threads to lend
  ThreadTeam* samplers = nullptr;
  std::unique_ptr<Roster> roster;
  std::unique_ptr<Speculator> speculator;  // null: nothing is guessed
  PrefillBudget budget{1, 0};
  DiffusionRules rules;  // canvas_length 0: one token after another
  size_t page_bytes = 0;
  SequenceId next_id = 1;
  std::vector<float> logits;
  std::vector<CanvasReading> readings;  // instead of them, where the backend reads canvases
  std::vector<TopLogit> top;            // instead of them, where the backend gives the largest only
  std::vector<Draw> draws;              // beside those, for rows whose rule asks for one
  std::vector<size_t> event_rows;       // of the last step's events: the sampled rows that they come from

  int32_t vocabulary() const { return model->program().vocabulary; }
  Batch make_batch(std::span<const int32_t> rows) const;
  std::vector<DrawRule> draw_rules(std::span<const int32_t> rows) const;
  Expected<StepStats> run(const Batch& batch, std::span<const int32_t> rows);
  /// Of the rows of sequence `sequence` of a batch, alone; its sampled rows are the batch's from `sampled` on.
  using RunAlone = std::function<Expected<StepStats>(const Batch& one, size_t sequence, size_t sampled)>;
  static Expected<StepStats> run_one_by_one(const Batch& batch, const RunAlone& run);
  Expected<StepStats> run_whole_logits(const Batch& batch);
  std::vector<Window> sample_all(std::span<const size_t> sequences);
  void sample_window(Sequence& sequence, Window& window);
  Expected<Sample> sample_one(Sequence& sequence, std::span<const float> row) const;
  Expected<Sample> sample_row(Sequence& sequence, size_t row);
  TokenEvent advance(Sequence& sequence, Expected<Sample> sampled);
  int64_t settle_guesses(size_t running, const Window& window);

  // Block diffusion (engine_canvas.cpp).
  Expected<void> check_diffusion(const SequenceRequest& request) const;
  int64_t positions_of(const SequenceRequest& request) const;
  Expected<StepReport> canvas_step();
  Batch make_canvas_batch(std::span<const int32_t> rows);
  Expected<StepStats> run_canvases(const Batch& batch, std::span<const int32_t> rows);
  Expected<CanvasRow> read_row(const Canvas& canvas, int32_t row, size_t sampled);
  std::vector<Expected<void>> read_canvases(std::span<const size_t> sequences);
  void commit(Sequence& sequence, Expected<void> read, StepReport& report);
};

}  // namespace cohort
