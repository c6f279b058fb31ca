#include "engine/expert_counts.h"

#include <gtest/gtest.h>

#include "base/test_folder.h"
#include "cohort/engine.h"
#include "formats/imatrix/imatrix.h"

namespace cohort {
namespace {

/// Two layers with experts, of which only names and sizes matter here.
struct World {
  Weight gate[2], up[2], down[2];
  Program program;
  TestFolder folder;
  ImportanceMatrix matrix;

  World() {
    for (size_t l = 0; l < 2; ++l) {
      const std::string layer = "blk." + std::to_string(l) + ".ffn_";
      gate[l].name = layer + "gate_exps";
      up[l].name = layer + "up_exps";
      down[l].name = layer + "down_exps";
      for (Weight* weight : {&gate[l], &up[l], &down[l]}) {
        weight->experts = 3;
        weight->rows = weight->cols = 2;
      }
      Op op;
      op.action = op::Experts{&gate[l], &up[l], &down[l], Activation::silu};
      program.ops.push_back(op);
    }
    add(gate[0], {5, 1, 2});
    add(down[1], {0, 7, 0});  // another matrix of the layer will do
  }
  void add(const Weight& weight, std::vector<float> counts) {
    Importance entry;
    entry.cols = weight.cols;
    entry.experts = static_cast<int64_t>(counts.size());
    entry.square_sums.assign(static_cast<size_t>(entry.cols) * counts.size(), 1.0F);
    entry.counts = std::move(counts);
    matrix.entries[weight.name + ".weight"] = entry;
  }
  Expected<std::vector<std::vector<float>>> read(ImportanceFormat format = ImportanceFormat::gguf) {
    const auto path = folder / "m.gguf";
    EXPECT_TRUE(write_importance(matrix, path, format));
    return read_expert_counts(path, program);
  }
  std::string refusal(ImportanceFormat format = ImportanceFormat::gguf) {
    const auto counts = read(format);
    return counts ? "" : counts.error().message;
  }
};

TEST(expert_counts, come_layer_by_layer) {
  World world;
  const auto counts = world.read();
  ASSERT_TRUE(counts) << counts.error().message;
  EXPECT_EQ(*counts, (std::vector<std::vector<float>>{{5, 1, 2}, {0, 7, 0}}));
}

TEST(expert_counts, of_another_model_are_refused) {
  World world;
  world.gate[0].experts = 4;
  EXPECT_NE(world.refusal().find("counts 3 experts of 'blk.0.ffn_gate_exps.weight', the model has 4"),
            std::string::npos)
      << world.refusal();
  World other;
  other.matrix.entries.erase("blk.1.ffn_down_exps.weight");
  EXPECT_NE(other.refusal().find("no counts of 'blk.1.ffn_gate_exps.weight'"), std::string::npos) << other.refusal();
  EXPECT_FALSE(read_expert_counts(other.folder / "none.gguf", other.program));
}

TEST(expert_counts, that_tell_nothing_are_refused) {
  World world;
  EXPECT_NE(world.refusal(ImportanceFormat::legacy).find("counts every expert alike"), std::string::npos)
      << world.refusal(ImportanceFormat::legacy);
}

TEST(expert_counts, and_the_devices_memory_are_for_cuda_devices) {
  for (const auto& change : {+[](EngineOptions& o) { o.device_memory = 1 << 30; },
                             +[](EngineOptions& o) { o.expert_counts = "counts.gguf"; }}) {
    EngineOptions options;
    options.model = "none.gguf";
    options.device = "cpu";
    change(options);
    const auto engine = Engine::create(options);
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(engine.error().message.find("only for CUDA devices"), std::string::npos) << engine.error().message;
  }
}

}  // namespace
}  // namespace cohort
