#include "engine/model_drafter.h"

#include <algorithm>

#include "base/result.h"
#include "engine/backend_choice.h"
#include "engine/sampler.h"

namespace cohort {
namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";

/// Token ids are all that the two models tell each other, so they must mean the same.
Expected<void> check_vocabulary(const Model& draft, const Model& target) {
  const int32_t ours = draft.program().vocabulary, theirs = target.program().vocabulary;
  if (ours != theirs) {
    return fail(ErrorCode::unsupported,
                "the draft model {} (--draft) has a vocabulary of {} tokens, the model {} one of {}; a draft must have "
                "the model's vocabulary",
                draft.path().string(), ours, target.path().string(), theirs);
  }
  if (draft.gguf_file() == nullptr || target.gguf_file() == nullptr) return {};
  const auto own = draft.gguf_file()->metadata().get_string_array(kTokens);
  const auto other = target.gguf_file()->metadata().get_string_array(kTokens);
  if (!own || !other) return {};
  for (size_t i = 0; i < std::min((*own)->size(), (*other)->size()); ++i) {
    if ((**own)[i] == (**other)[i]) continue;
    return fail(ErrorCode::unsupported,
                "token {} is '{}' for the draft model {} (--draft) and '{}' for the model {}; a draft must have the "
                "model's vocabulary",
                i, (**own)[i], draft.path().string(), (**other)[i], target.path().string());
  }
  return {};
}

}  // namespace

Expected<std::unique_ptr<Drafter>> ModelDrafter::create(const EngineOptions& options, const Model& target,
                                                        const ProgressCallback& progress) {
  COHORT_ASSIGN(auto model, Model::load(options.draft));
  COHORT_TRY(check_vocabulary(*model, target));
  if (model->config().diffusion.canvas_length > 0) {
    return fail(ErrorCode::unsupported,
                "the draft model {} (--draft) denoises many tokens together; a draft must make one after another",
                options.draft);
  }
  if (model->context() > target.context()) {
    COHORT_ASSIGN(model, Model::load(options.draft, target.context()));
  }
  EngineOptions own = options;
  own.model = options.draft;
  own.packed = "off";
  own.kv_positions = 0;
  COHORT_ASSIGN(OpenedBackend opened, open_backend(*model, own, progress));
  return std::unique_ptr<Drafter>(
      new ModelDrafter(std::move(model), std::move(opened.backend), opened.pages, options.prefill_rows));
}

std::string ModelDrafter::description() const {
  return fmt::format("{} on {}", model_->config().name, backend_->description());
}

void ModelDrafter::forget(SequenceId id) {
  const auto found = states_.find(id);
  if (found == states_.end()) return;
  for (const int32_t page : found->second.pages) pool_.release(page);
  states_.erase(found);
}

/// Rows for what the model has not read of work.tokens, as far as there are pages and, beyond one row, `budget`. False:
/// none can run.
bool ModelDrafter::take_rows(Work& work, int32_t& budget) {
  const auto read = static_cast<int32_t>(work.state->read.size());
  const auto end = std::min(static_cast<int32_t>(work.tokens.size()), model_->context());
  const int32_t missing = end - read;
  work.rows = std::min(missing, 1 + budget);
  while (static_cast<int32_t>(work.state->pages.size()) < pages_for(int64_t{read} + work.rows)) {
    const int32_t page = pool_.take();
    if (page < 0) break;
    work.state->pages.push_back(page);
  }
  work.rows = std::min(work.rows, static_cast<int32_t>(work.state->pages.size()) * kPagePositions - read);
  if (work.rows <= 0) return false;
  budget -= work.rows - 1;
  return true;
}

/// One step of the draft model: a guess for each work whose tokens are all read by then; the others leave the list.
Expected<void> ModelDrafter::pass(std::vector<Work>& works) {
  int32_t budget = rows_;
  std::erase_if(works, [&](Work& work) { return !take_rows(work, budget); });
  Batch batch;
  for (const Work& work : works) {
    const auto first = static_cast<int32_t>(work.state->read.size());
    batch.sequences.push_back({batch.rows(), work.rows, first, work.state->pages});
    for (int32_t position = first; position < first + work.rows; ++position) {
      batch.tokens.push_back(work.tokens[static_cast<size_t>(position)]);
      batch.positions.push_back(position);
      work.state->read.push_back(batch.tokens.back());
    }
    if (work.state->read.size() == work.tokens.size()) batch.sampled_rows.push_back(batch.rows() - 1);
  }
  if (batch.rows() == 0) return {};
  const auto width = static_cast<size_t>(model_->program().vocabulary);
  logits_.resize(batch.sampled_rows.size() * width);
  COHORT_TRY(backend_->run(batch, logits_));
  std::erase_if(works, [](const Work& work) { return work.state->read.size() != work.tokens.size(); });
  size_t row = 0;
  for (Work& work : works) {
    const auto logits = std::span(logits_).subspan(row++ * width, width);
    // A draft model with broken weights guesses nothing; it is not what the answer depends on.
    const auto choice = sample(logits, *work.wish->sampling, work.tokens, static_cast<uint32_t>(work.tokens.size()));
    if (!choice) continue;
    work.tokens.push_back(choice->token);
    work.wish->guesses.push_back(choice->token);
  }
  std::erase_if(works, [](const Work& work) {
    return work.state->read.size() == work.tokens.size() ||
           static_cast<int32_t>(work.wish->guesses.size()) == work.wish->count;
  });
  return {};
}

Expected<void> ModelDrafter::guess(std::span<Wish> wishes) {
  std::vector<Work> works;
  for (Wish& wish : wishes) {
    wish.guesses.clear();
    State& state = states_[wish.id];
    // What was guessed wrong is read anew; the last token is always read, because its logits are wanted.
    const auto common = std::ranges::mismatch(state.read, wish.tokens).in1 - state.read.begin();
    state.read.resize(std::min(static_cast<size_t>(common), wish.tokens.size() - 1));
    works.push_back({&wish, &state, {wish.tokens.begin(), wish.tokens.end()}});
  }
  while (!works.empty()) COHORT_TRY(pass(works));
  return {};
}

}  // namespace cohort
