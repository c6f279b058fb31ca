// What a loaded model takes of memory: about one copy of its weights.
#include "base/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/test_folder.h"
#include "base/test_sanitizer.h"
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

/// A folder as MLX writes it (4 bits in groups of 64, bf16 scales and biases), in the shape of qwen3-moe-mini. Returns
/// the bytes of its tensors.
size_t write_mlx_folder(const TestFolder& folder, int32_t layers) {
  constexpr int64_t kHidden = 1024, kInner = 384, kExperts = 64, kVocabulary = 4096, kHead = 128, kHeads = 16, kKv = 4;
  nlohmann::json header;
  std::string data;
  const auto add = [&](const std::string& name, const char* type, const std::vector<int64_t>& shape, size_t bytes,
                       uint32_t pattern) {
    header[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes}}};
    for (size_t at = 0; at < bytes; at += sizeof pattern) {
      const uint32_t word = pattern != 0 ? pattern : static_cast<uint32_t>(at * 2654435761U);
      data.append(reinterpret_cast<const char*>(&word), sizeof word);
    }
  };
  const auto norm = [&](const std::string& name, int64_t width) {
    add(name + ".weight", "BF16", {width}, static_cast<size_t>(width) * 2, 0x3F803F80);  // 1.0
  };
  const auto matrix = [&](const std::string& name, std::vector<int64_t> shape) {
    const int64_t cols = shape.back();
    size_t values = 1;
    for (const int64_t n : shape) values *= static_cast<size_t>(n);
    shape.back() = cols / 8;
    add(name + ".weight", "U32", shape, values / 2, 0);
    shape.back() = cols / 64;
    add(name + ".scales", "BF16", shape, values / 32, 0x3B803B80);  // 2^-8
    add(name + ".biases", "BF16", shape, values / 32, 0xBD00BD00);  // -2^-5
  };
  matrix("model.embed_tokens", {kVocabulary, kHidden});
  matrix("lm_head", {kVocabulary, kHidden});
  norm("model.norm", kHidden);
  for (int32_t l = 0; l < layers; ++l) {
    const std::string layer = "model.layers." + std::to_string(l) + ".";
    norm(layer + "input_layernorm", kHidden);
    norm(layer + "post_attention_layernorm", kHidden);
    norm(layer + "self_attn.q_norm", kHead);
    norm(layer + "self_attn.k_norm", kHead);
    matrix(layer + "self_attn.q_proj", {kHeads * kHead, kHidden});
    matrix(layer + "self_attn.k_proj", {kKv * kHead, kHidden});
    matrix(layer + "self_attn.v_proj", {kKv * kHead, kHidden});
    matrix(layer + "self_attn.o_proj", {kHidden, kHeads * kHead});
    matrix(layer + "mlp.gate", {kExperts, kHidden});
    matrix(layer + "mlp.switch_mlp.gate_proj", {kExperts, kInner, kHidden});
    matrix(layer + "mlp.switch_mlp.up_proj", {kExperts, kInner, kHidden});
    matrix(layer + "mlp.switch_mlp.down_proj", {kExperts, kHidden, kInner});
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto length = static_cast<uint64_t>(text.size());
  std::ofstream out(folder / "model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << text << data;
  const nlohmann::json config = {{"architectures", {"Qwen3MoeForCausalLM"}},
                                 {"model_type", "qwen3_moe"},
                                 {"hidden_size", kHidden},
                                 {"intermediate_size", kInner},
                                 {"moe_intermediate_size", kInner},
                                 {"num_experts", kExperts},
                                 {"num_experts_per_tok", 8},
                                 {"norm_topk_prob", true},
                                 {"num_hidden_layers", layers},
                                 {"num_attention_heads", kHeads},
                                 {"num_key_value_heads", kKv},
                                 {"head_dim", kHead},
                                 {"vocab_size", kVocabulary},
                                 {"max_position_embeddings", 4096},
                                 {"rms_norm_eps", 1e-6},
                                 {"rope_theta", 1e6},
                                 {"tie_word_embeddings", false},
                                 {"quantization", {{"group_size", 64}, {"bits", 4}}}};
  folder.write("config.json", config.dump());
  return data.size();
}

// The folder's integers are laid out anew twice: as blocks, then as tiles. Blocks of a matrix exist only while its
// tiles are made. Q4_1 takes 5 bits for the folder's 4.5.
TEST(memory, one_copy_of_a_packed_folder_is_resident) {
  if (kSanitizersMemory) GTEST_SKIP() << "the sanitizer's own memory is resident, too";
  const TestFolder folder;
  const size_t bytes = write_mlx_folder(folder, 5);
  ASSERT_GT(bytes, 3 * kBeside);
  EngineOptions options;
  options.model = folder.path();
  options.context = 64;
  options.max_streams = 1;
  options.threads = 2;
  const size_t limit = bytes / 9 * 10 + bytes / 10 + kBeside;
  const Memory loaded = memory_of(options);
  EXPECT_GT(loaded.resident, bytes / 2);
  EXPECT_LE(loaded.resident, limit) << bytes;
  EXPECT_LE(loaded.peak, limit) << bytes;
}

TEST(memory, one_copy_of_the_weights_is_resident_while_packing_and_after) {
  if (kSanitizersMemory) GTEST_SKIP() << "the sanitizer's own memory is resident, too";
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
