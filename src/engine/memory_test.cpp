// What a loaded model takes of memory: about one copy of its weights.
#include "base/memory.h"

#include <gtest/gtest.h>

#include "base/test_folder.h"
#include "cohort/engine.h"
#include "measure/synth.h"

namespace cohort {
namespace {

// Beside weights and KV: buffers of a step, tables, the allocator's rests. Much less than the file, so that a second
// copy of the weights cannot hide in it.
constexpr size_t kBeside = size_t{48} << 20;

struct Memory {
  size_t peak = 0, resident = 0;  // more than before
};

Memory memory_of(const EngineOptions& options) {
  const size_t before = resident_memory();
  reset_peak_resident_memory();
  auto engine = Engine::create(options);
  EXPECT_TRUE(engine) << engine.error().message;
  SequenceRequest request;
  request.prompt = {1, 2, 3, 4, 5, 6, 7, 8};
  request.max_tokens = 4;
  EXPECT_TRUE((*engine)->submit(request));
  while (!(*engine)->idle()) EXPECT_TRUE((*engine)->step());
  return {peak_resident_memory() - before, resident_memory() - before};
}

TEST(memory, one_copy_of_the_weights_is_resident_while_packing_and_after) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's own memory is resident, too";
#endif
  const TestFolder folder;
  for (const char* type : {"q4_0", "q4_k_m"}) {
    SynthOptions synth;
    synth.config = "qwen3-moe-mini";
    synth.type = type;
    synth.output = folder / type;
    synth.layers = 3;
    const auto file = synthesise(synth);
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_GT(*file, 3 * kBeside);
    EngineOptions options;
    options.model = synth.output;
    options.context = 64;
    options.max_streams = 1;
    options.threads = 2;
    const size_t kv = size_t{3} * 2 * 64 * 4 * 128 * 2;  // layers, K and V, positions, heads, values, bytes
    const size_t limit = *file + *file / 10 + kv + kBeside;
    const Memory packed = memory_of(options);
    EXPECT_GT(packed.resident, *file / 2);  // else this measures nothing
    EXPECT_LE(packed.resident, limit) << type;
    EXPECT_LE(packed.peak, limit) << type;

    options.packed = "auto";  // packs and writes, then maps
    EXPECT_LE(memory_of(options).peak, limit) << type;
    EXPECT_LE(memory_of(options).peak, limit) << type;
  }
}

}  // namespace
}  // namespace cohort
