// Models of random weights for tests and benchmarks: any family, any sizes, any type for each matrix.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "kernels/cpu/test_weights.h"
#include "models/config.h"
#include "models/families.h"
#include "models/weight_store.h"

namespace cohort::testing {

/// Every matrix that is asked for exists, with the type that `type_of` gives its name.
class RandomStore final : public WeightStore {
 public:
  using TypeOf = std::function<TensorType(const std::string& name)>;
  explicit RandomStore(TypeOf type_of, uint64_t seed = 1) : type_of_(std::move(type_of)), seed_(seed) {}
  bool has(const std::string& name) const override { return name.find("bias") == std::string::npos || biases_; }
  std::vector<std::string> unused() const override { return {}; }  // it makes what it is asked for
  void with_biases() { biases_ = true; }

 protected:
  Expected<Weight> find_matrix(const std::string& name, int64_t rows, int64_t cols, int64_t experts) override {
    owned_.push_back(random_weight(type_of_(name), experts, rows, cols, seed_ + std::hash<std::string>{}(name)));
    owned_.back().weight.name = name;
    return owned_.back().weight;
  }
  Expected<std::vector<float>> find_vector(const std::string& name, int64_t size) override {
    std::vector<float> values(static_cast<size_t>(size));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = 1.0F + 0.5F * random_float(std::hash<std::string>{}(name), static_cast<uint32_t>(i));
    return values;
  }

 private:
  TypeOf type_of_;
  uint64_t seed_;
  bool biases_ = false;
  std::deque<OwnedWeight> owned_;
};

struct RandomModel {
  ModelConfig config;
  RopeTables rope;
  std::unique_ptr<RandomStore> store;
  Program program;
};

/// `config.architecture` chooses the family.
inline Expected<std::unique_ptr<RandomModel>> random_model(const ModelConfig& config, RandomStore::TypeOf type_of,
                                                           bool biases = false) {
  auto model = std::make_unique<RandomModel>();
  model->config = config;
  model->store = std::make_unique<RandomStore>(std::move(type_of));
  if (biases) model->store->with_biases();
  model->rope = make_rope_tables(config);
  model->rope.full.fill(config.context);
  model->rope.sliding.fill(config.context);
  COHORT_ASSIGN(model->program, find_family(config.architecture)->build(model->config, model->rope, *model->store));
  return model;
}

}  // namespace cohort::testing
