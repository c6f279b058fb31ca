// Guesses from a small model with the same vocabulary. It chooses with the sequence's own rule and random numbers, so
// that it agrees with the large model as often as their distributions allow, at any temperature.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>

#include "engine/drafter.h"
#include "kernels/backend.h"
#include "kv/pages.h"
#include "models/model.h"

namespace cohort {

class ModelDrafter : public Drafter {
 public:
  /// Loads options.draft beside the model `target`, for as many streams and positions as memory allows. Errors: those
  /// of loading a model; unsupported when the vocabularies differ.
  static Expected<std::unique_ptr<Drafter>> create(const EngineOptions& options, const Model& target,
                                                   const ProgressCallback& progress);

  std::string description() const override;
  Expected<void> guess(std::span<Wish> wishes) override;
  void forget(SequenceId id) override;

 private:
  ModelDrafter(std::unique_ptr<Model> model, std::unique_ptr<Backend> backend, int32_t pages, int32_t rows)
      : model_(std::move(model)), backend_(std::move(backend)), pool_(pages), rows_(rows) {}

  /// What the draft model knows of a sequence.
  struct State {
    std::vector<int32_t> read;  // tokens whose K and V are in its cache
    std::vector<int32_t> pages;
  };
  /// A wish while it is being answered.
  struct Work {
    Wish* wish;
    State* state;
    std::vector<int32_t> tokens;  // the sequence's and the guesses so far
    int32_t rows = 0;             // in this pass
  };
  bool take_rows(Work& work, int32_t& budget);
  Expected<void> pass(std::vector<Work>& works);

  std::unique_ptr<Model> model_;
  std::unique_ptr<Backend> backend_;
  PagePool pool_;
  int32_t rows_;  // of one pass, at most, beside one for each sequence
  std::unordered_map<SequenceId, State> states_;
  std::vector<float> logits_;
};

}  // namespace cohort
