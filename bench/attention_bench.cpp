// Attention and elementwise kernels on one thread. Layers are visited in turn, so K and V come from memory as they do
// in a step. GFLOP/s count 4 operations per head, dimension and visible position; GB/s count each cached value once
// per block of rows that reads it together.
#include <benchmark/benchmark.h>

#include <memory>
#include <new>
#include <string>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/peak.h"

namespace cohort::cpu {
namespace {

struct Floats {
  explicit Floats(size_t count) : data(new (std::align_val_t{64}) float[count + 16]) {
    for (size_t i = 0; i < count; ++i) data[i] = static_cast<float>(i % 613) * 0x1p-9F - 0.6F;
  }
  ~Floats() { operator delete[](data, std::align_val_t{64}); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  float* data;
};

void attention(benchmark::State& state, Isa isa, int32_t sequences, int32_t context, int32_t rows, int32_t heads,
               int32_t kv_heads, int32_t head_dim, TensorType type) {
  const int32_t pages_each = (context + kPagePositions - 1) / kPagePositions;
  const std::vector<CacheLayer> one = {{kv_heads, head_dim, 0}};
  const auto layer_bytes = static_cast<int64_t>(KvCache::page_bytes(one, type)) * pages_each * sequences;
  const auto layers =
      static_cast<int32_t>(std::clamp<int64_t>((int64_t{512} << 20) / layer_bytes, 2, 48)) >> (context <= 256 ? 5 : 0);
  auto cache =
      KvCache::create(std::vector<CacheLayer>(static_cast<size_t>(layers), one[0]), type, pages_each * sequences);
  if (!cache) return state.SkipWithError(cache.error().message.c_str());
  std::vector<std::vector<int32_t>> pages(static_cast<size_t>(sequences));
  Batch past, batch;
  for (int32_t s = 0; s < sequences; ++s) {
    for (int32_t i = 0; i < pages_each; ++i) pages[static_cast<size_t>(s)].push_back(i * sequences + s);
    past.sequences.push_back({s * context, context, 0, pages[static_cast<size_t>(s)]});
    batch.sequences.push_back({s * rows, rows, context - rows, pages[static_cast<size_t>(s)]});
  }
  op::Attend attend{0, heads, kv_heads, head_dim, 0.088F, 0};
  const AttentionKernels& kernels = attention_kernels(isa);
  {
    const Floats k(static_cast<size_t>(sequences) * context * kv_heads * head_dim);
    for (attend.cache_layer = 0; attend.cache_layer < layers; ++attend.cache_layer) {
      const AttentionCall call = make_attention_call(attend, past, *cache, nullptr, nullptr, nullptr);
      for (const SequenceRows& sequence : past.sequences) kernels.append(call, sequence, 0, context, k.data, k.data);
    }
  }
  const size_t width = static_cast<size_t>(sequences) * rows * heads * head_dim;
  const Floats q(width), out(width);
  const AttentionPlan plan(attend, batch, kernels, 1);
  const Floats scratch(plan.scratch_floats()), shared(plan.shared_floats());
  attend.cache_layer = 0;
  for (auto _ : state) {
    const AttentionCall call = make_attention_call(attend, batch, *cache, q.data, out.data, shared.data);
    for (const AttentionJob& job : plan.jobs())
      kernels.run(call, job, &job + 1 < plan.jobs().data() + plan.jobs().size() ? &job + 1 : nullptr, scratch.data);
    for (const AttentionJob& job : plan.merges()) kernels.merge(call, job);
    attend.cache_layer = (attend.cache_layer + 1) % layers;
  }
  const double visible = (context - rows) + (rows + 1) / 2.0;
  const double calls = static_cast<double>(state.iterations());
  const double value_bytes = type == TensorType::f32 ? 4 : 2;
  state.counters["GFLOP/s"] =
      benchmark::Counter(calls * 4e-9 * head_dim * heads * visible * rows * sequences, benchmark::Counter::kIsRate);
  double positions = 0;
  for (const AttentionJob& job : plan.jobs()) {
    const int32_t end = context - rows + job.first_row + job.rows;
    positions += std::min(end, (job.first_split + job.splits) * kSplitPositions) - job.first_split * kSplitPositions;
  }
  state.counters["GB/s"] =
      benchmark::Counter(calls * 1e-9 * positions * head_dim * 2 * value_bytes, benchmark::Counter::kIsRate);
}

void append(benchmark::State& state, Isa isa) {
  auto cache = KvCache::create(std::vector<CacheLayer>(16, {4, 128, 0}), TensorType::f16, 16);
  std::vector<int32_t> pages;
  for (int32_t i = 0; i < 16; ++i) pages.push_back(i);
  Batch batch;
  batch.sequences.push_back({0, 512, 0, pages});
  const Floats k(512 * 4 * 128);
  op::Attend attend{0, 32, 4, 128, 1.0F, 0};
  for (auto _ : state) {
    const AttentionCall call = make_attention_call(attend, batch, *cache, nullptr, nullptr, nullptr);
    attention_kernels(isa).append(call, batch.sequences[0], 0, 512, k.data, k.data);
    attend.cache_layer = (attend.cache_layer + 1) % 16;
  }
  state.counters["Mvalues/s"] =
      benchmark::Counter(1e-6 * static_cast<double>(state.iterations()) * 512 * 1024, benchmark::Counter::kIsRate);
}

template <class Function>
void elementwise(benchmark::State& state, double values, Function function) {
  for (auto _ : state) {
    function();
    benchmark::ClobberMemory();
  }
  state.counters["Mvalues/s"] =
      benchmark::Counter(1e-6 * static_cast<double>(state.iterations()) * values, benchmark::Counter::kIsRate);
}

void register_isa(Isa isa) {
  const auto name = [&](const char* what) { return std::string(isa_name(isa)) + "/" + what; };
  const auto attend = [&](const char* what, int32_t sequences, int32_t context, int32_t rows, int32_t heads = 32,
                          int32_t kv_heads = 4, int32_t head_dim = 128, TensorType type = TensorType::f16) {
    benchmark::RegisterBenchmark(name(what).c_str(), attention, isa, sequences, context, rows, heads, kv_heads,
                                 head_dim, type);
  };
  attend("decode_1x256_cached", 1, 256, 1);
  attend("decode_1x512", 1, 512, 1);
  attend("decode_1x4096", 1, 4096, 1);
  attend("decode_32x512", 32, 512, 1);
  attend("decode_1x4096_mha8", 1, 4096, 1, 8, 8);
  attend("decode_1x4096_group4_dim64", 1, 4096, 1, 16, 4, 64);
  attend("decode_1x4096_bf16", 1, 4096, 1, 32, 4, 128, TensorType::bf16);
  attend("window_8x512", 1, 512, 8);
  attend("prefill_512", 1, 512, 512);
  attend("prefill_512_of_4096", 1, 4096, 512);
  attend("prefill_512_mha8", 1, 512, 512, 8, 8);
  attend("prefill_512_dim256", 1, 512, 512, 16, 8, 256);
  benchmark::RegisterBenchmark(name("append_512_rows").c_str(), append, isa);
  const auto vector = [&](const char* what, double values, auto function) {
    benchmark::RegisterBenchmark(name(what).c_str(), [=](benchmark::State& state) {
      const Floats a(4096), b(4096), c(4096);
      elementwise(state, values, [&] { function(elementwise_kernels(isa), a.data, b.data, c.data); });
    });
  };
  vector("rms_norm_2048", 2048,
         [](const ElementwiseKernels& k, float* a, float* b, float* c) { k.rms_norm(a, b, 1e-6F, 2048, 1, c); });
  vector("rms_norm_32_heads_128", 4096,
         [](const ElementwiseKernels& k, float* a, float* b, float* c) { k.rms_norm(a, b, 1e-6F, 128, 32, c); });
  vector("add_2048", 2048, [](const ElementwiseKernels& k, float* a, float* b, float* c) { k.add(a, b, 2048, c); });
  vector("silu_gate_768", 768,
         [](const ElementwiseKernels& k, float* a, float* b, float* c) { k.gate(Activation::silu, a, b, 768, c); });
  vector("gelu_gate_704", 704, [](const ElementwiseKernels& k, float* a, float* b, float* c) {
    k.gate(Activation::gelu_tanh, a, b, 704, c);
  });
  vector("rope_32_heads_128", 4096, [](const ElementwiseKernels& k, float* a, float* b, float* c) {
    std::fill_n(b, 64, 0.6F);
    std::fill_n(c, 64, 0.8F);
    k.rope(a, b, c, 64, RopePairing::half_split, 32, 128);
  });
  vector("softcap_4096", 4096,
         [](const ElementwiseKernels& k, float* a, float*, float* c) { k.softcap(a, 30.0F, 4096, c); });
  vector("argmax_4096", 4096,
         [](const ElementwiseKernels& k, float* a, float*, float*) { benchmark::DoNotOptimize(k.argmax(a, 4096)); });
  vector("route_8_of_128", 128, [](const ElementwiseKernels& k, float* a, float* b, float* c) {
    int32_t experts[8];
    std::copy(a, a + 128, c);
    k.route({128, 8, true, nullptr}, c, experts, b);
  });
  benchmark::RegisterBenchmark(name("fma_peak").c_str(), [=](benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(fma_peak_kernel(isa)(1000));
    state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(state.iterations()) * 1000 * kPeakFmas,
                                                   benchmark::Counter::kIsRate);
  });
}

const bool registered = [] {
  for (Isa isa : available_isas()) {
    if (isa != Isa::amx) register_isa(isa);  // amx uses avx512's
  }
  return true;
}();

}  // namespace
}  // namespace cohort::cpu
