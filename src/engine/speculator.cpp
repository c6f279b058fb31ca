#include "engine/speculator.h"

#include <algorithm>
#include <chrono>

#include "base/counted.h"
#include "base/result.h"
#include "engine/lookup_drafter.h"
#include "engine/model_drafter.h"

namespace cohort {

Expected<std::unique_ptr<Speculator>> Speculator::create(const EngineOptions& options, const Model& target,
                                                         const ProgressCallback& progress) {
  if (options.draft == "off") return nullptr;
  std::unique_ptr<Drafter> drafter;
  if (options.draft == "lookup") {
    drafter = std::make_unique<LookupDrafter>();
  } else {
    COHORT_ASSIGN(drafter, ModelDrafter::create(options, target, progress));
  }
  return std::make_unique<Speculator>(std::move(drafter), options.draft_tokens, options.draft_always);
}

std::string Speculator::description() const {
  return fmt::format("at most {} a step from {}", counted(most_, "guessed token"), drafter_->description());
}

Expected<void> Speculator::guess(std::span<Sequence> running, int32_t context) {
  std::vector<WindowChooser::Stream> streams;
  std::vector<Sequence*> sequences;
  for (Sequence& s : running) {
    s.guesses.clear();
    if (!s.decoding()) continue;
    // A window of k guesses gives at most k + 1 tokens.
    const int32_t room = std::min(s.request.max_tokens - s.generated(), context - s.size()) - 1;
    streams.push_back({s.hits.value(), std::max(room, 0)});
    sequences.push_back(&s);
  }
  const std::vector<int32_t> counts = chooser_.choose(streams);
  std::vector<Wish> wishes;
  std::vector<Sequence*> wishing;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const Sequence& s = *sequences[i];
    wishes.push_back({s.id, s.tokens, &s.request.sampling, counts[i], {}});
    wishing.push_back(sequences[i]);
  }
  if (wishes.empty()) return {};
  const auto start = std::chrono::steady_clock::now();
  COHORT_TRY(drafter_->guess(wishes));
  int64_t guesses = 0;
  for (size_t i = 0; i < wishes.size(); ++i) {
    guesses += static_cast<int64_t>(wishes[i].guesses.size());
    wishing[i]->guesses = std::move(wishes[i].guesses);
  }
  chooser_.observe_drafting(guesses, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return {};
}

}  // namespace cohort
