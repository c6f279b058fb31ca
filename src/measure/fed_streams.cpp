#include "measure/fed_streams.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>

#include "base/result.h"
#include "base/rng.h"
#include "kernels/canvas_reader.h"
#include "kv/pages.h"

namespace cohort {

FedStreams::FedStreams(Backend& backend, const Program& program, const FeedShape& shape, int32_t count)
    : backend_(backend), program_(program), shape_(shape), pages_(static_cast<size_t>(count)) {
  const int32_t each = pages_for(fed_positions(shape.prompt_tokens, shape.generated_tokens, shape.canvas));
  int32_t next = 0;
  for (auto& pages : pages_) {
    pages.resize(static_cast<size_t>(each));
    std::iota(pages.begin(), pages.end(), next);
    next += each;
  }
  logits_.resize(pages_.size() * static_cast<size_t>(program.vocabulary) *
                 static_cast<size_t>(std::max(1, shape.canvas)));
  // A few likely tokens for every row.
  constexpr uint32_t kThoughts = 16;
  thought_.resize(static_cast<size_t>(shape.canvas));
  for (size_t row = 0; row < thought_.size(); ++row) {
    for (uint32_t k = 0; k < kThoughts; ++k) {
      thought_[row].tokens.push_back(static_cast<int32_t>(
          random_below(2, static_cast<uint32_t>(row), k, 0, static_cast<uint32_t>(program.vocabulary))));
    }
    std::ranges::sort(thought_[row].tokens);
    thought_[row].weights.assign(kThoughts, 1.0F / kThoughts);
  }
}

Expected<StepStats> FedStreams::prefill() {
  StepStats sums;
  for (size_t stream = 0; stream < pages_.size(); ++stream) {
    for (int32_t first = 0; first < shape_.prompt_tokens; first += shape_.prefill_rows) {
      const int32_t rows = std::min(shape_.prefill_rows, shape_.prompt_tokens - first);
      Batch batch;
      add_rows(batch, stream, first, rows);
      if (first + rows == shape_.prompt_tokens) batch.sampled_rows.push_back(rows - 1);
      COHORT_TRY(step(batch, sums));
    }
  }
  return sums;
}

Expected<StepStats> FedStreams::decode() {
  StepStats sums;
  for (int32_t i = 0; i < shape_.generated_tokens; ++i) {
    Batch batch;
    for (size_t stream = 0; stream < pages_.size(); ++stream) {
      const int32_t first = batch.rows();
      add_rows(batch, stream, shape_.prompt_tokens + (shape_.canvas > 0 ? 0 : i), std::max(1, shape_.canvas));
      batch.sequences.back().canvas = shape_.canvas > 0;
      batch.sequences.back().mixtures = thought_;
      for (int32_t row = first; row < batch.rows(); ++row) batch.sampled_rows.push_back(row);
    }
    COHORT_TRY(step(batch, sums));
  }
  return sums;
}

void FedStreams::add_rows(Batch& batch, size_t stream, int32_t first, int32_t rows) {
  batch.sequences.push_back({batch.rows(), rows, first, pages_[stream]});
  for (int32_t r = 0; r < rows; ++r) {
    const auto position = static_cast<uint32_t>(first + r);
    const float u = uniform(1, position, 0, shape_.shared_tokens ? 0 : static_cast<uint32_t>(stream));
    batch.tokens.push_back(static_cast<int32_t>(u * static_cast<float>(program_.vocabulary)));
    batch.positions.push_back(first + r);
  }
}

Expected<void> FedStreams::step(const Batch& batch, StepStats& sums) {
  const auto start = std::chrono::steady_clock::now();
  COHORT_ASSIGN(const StepStats stats, run(batch));
  sums.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  sums.rows += stats.rows;
  sums.bytes += stats.bytes;
  sums.distinct_experts += stats.distinct_experts;
  return {};
}

/// As the engine would.
Expected<StepStats> FedStreams::run(const Batch& batch) {
  auto* reader = dynamic_cast<CanvasReader*>(&backend_);
  if (batch.sequences[0].canvas && reader != nullptr && reader->canvas_places() > 0) {
    std::vector<CanvasPlace> places;
    for (size_t i = 0; i < pages_.size(); ++i) places.push_back({static_cast<int32_t>(i), thinks_});
    thinks_ = true;
    const std::vector<CanvasRule> rules(batch.sampled_rows.size(), {0.8F, 0.5F});
    std::vector<CanvasReading> readings(rules.size());
    return reader->run_canvases(batch, places, rules, readings);
  }
  const auto top = static_cast<size_t>(shape_.whole_logits ? 0 : backend_.top_logits());
  top_.resize(batch.sampled_rows.size() * top);
  if (top > 0) return backend_.run_top(batch, {}, top_, {});
  return backend_.run(batch,
                      std::span(logits_).first(batch.sampled_rows.size() * static_cast<size_t>(program_.vocabulary)));
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string main_type(const Program& program) {
  std::map<std::string, size_t> bytes;
  const auto count = [&](const Weight* w) { bytes[std::string(type_info(w->type).name)] += w->bytes(); };
  for (const Op& op : program.ops) {
    if (const auto* linear = std::get_if<op::Linear>(&op.action)) count(linear->weight);
    if (const auto* experts = std::get_if<op::Experts>(&op.action)) {
      for (const Weight* w : {experts->gate, experts->up, experts->down}) count(w);
    }
  }
  const auto largest = std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  return largest == bytes.end() ? "none" : largest->first;
}

}  // namespace cohort
