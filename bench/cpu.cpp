// Kernels of the CPU backend alone, for docs/perf/cpu.md:
//   bench_cpu tile    [isa] [layouts]     GMAC/s a core, one tile in cache, by layout and rows
//   bench_cpu blocks  [isa] [layouts]     ns for a block of a tile, in cache and from memory
//   bench_cpu experts [isa] [mini|30b]    the expert pass on uniformly random routes: ms a layer, GB/s, % of bandwidth
//   bench_cpu steps   [isa] [q4_0|q4_k] [layers]   whole steps of qwen3-moe-mini, by streams, with a profile
// Every figure is the median of its repeats; weights of all layers are several times the caches.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>

#include "base/thread_team.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/random_model.h"
#include "kv/cache.h"

namespace {

using namespace cohort;
using namespace cohort::cpu;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of processor time of this thread: other processes' turns do not count.
double thread_now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

std::byte* huge(size_t bytes) {
  bytes = (bytes + (2U << 20) - 1) >> 21 << 21;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(2U << 20, bytes));
  madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

/// Random bytes, with f16 scales of 0.01 at the front of every tile.
void fill_tiles(std::byte* data, const PackedShape& shape, int64_t tiles, ThreadTeam& team) {
  team.run(tiles, [&](int64_t t, int) {
    std::minstd_rand random(static_cast<unsigned>(t + 1));
    auto* words = reinterpret_cast<uint32_t*>(data + t * shape.tile_bytes);
    for (int64_t i = 0; i < shape.tile_bytes / 4; ++i) words[i] = random() * 3U;
    for (int64_t i = 0; i < shape.scale_bytes / 4; ++i) words[i] = 0x211f211fU;
  });
}

double read_bandwidth(const std::byte* data, size_t bytes, ThreadTeam& team) {
  constexpr size_t kPiece = 1U << 20;
  std::vector<double> rates;
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::atomic<long> sink{0};
    const double start = now();
    team.run(static_cast<int64_t>(bytes / kPiece), [&](int64_t i, int) {
      const auto* p = reinterpret_cast<const long*>(data + static_cast<size_t>(i) * kPiece);
      long a = 0, b = 0, c = 0, d = 0;
      for (size_t k = 0; k < kPiece / 8; k += 32) {  // one load of each half line pulls in all of it
        a += p[k];
        b += p[k + 8];
        c += p[k + 16];
        d += p[k + 24];
      }
      sink += a + b + c + d;
    });
    rates.push_back(static_cast<double>(bytes) / (now() - start) / 1e9);
  }
  return median(rates);
}

constexpr const char* kLayoutNames[kLayouts] = {"q4_0",  "q4_1",    "q5_0",   "q5_1",  "q8_0",      "q4_k",    "q5_k",
                                                "q6_k",  "affine8", "q1_0",   "q2_0",  "q2_0_g128", "ternary", "q2_k",
                                                "q3_k",  "iq4_nl",  "iq4_xs", "mxfp4", "nvfp4",     "iq2_xxs", "iq2_xs",
                                                "iq2_s", "iq3_xxs", "iq3_s",  "iq1_s", "iq1_m"};

/// Processor seconds of a tile times `rows` rows, walking over `tiles` tiles: the median, or the least where the tiles
/// come from memory and others may disturb.
double tile_seconds(const LinearKernels& kernels, const PackedShape& shape, const std::byte* data, int64_t tiles,
                    int32_t rows, int64_t calls, bool least) {
  const int64_t cols = int64_t{shape.blocks} * kBlockValues;
  ActivationBuffer x;
  x.reserve(rows, cols, layout_info(shape.layout).sums);
  const ActivationChunk chunk = x.chunk(0, rows);
  const auto values = cohort::testing::random_rows(rows, cols, 1, false);
  for (int32_t i = 0; i < rows; ++i) kernels.quantise(values.data() + i * cols, shape.blocks, chunk, i);
  std::vector<float> out(static_cast<size_t>(16 * rows));
  std::vector<double> times;
  for (int repeat = 0; repeat < 7; ++repeat) {
    const double start = thread_now();
    for (int64_t i = 0; i < calls; ++i) {
      const TileCall call{data + i % tiles * shape.tile_bytes,      &shape, &chunk, out.data(), 16, 16,
                          data + (i + 1) % tiles * shape.tile_bytes};
      kernels.tile[static_cast<int>(shape.layout)](call);
    }
    times.push_back((thread_now() - start) / static_cast<double>(calls));
  }
  return least ? *std::ranges::min_element(times) : median(times);
}

/// GMAC/s a core of the layouts named (or all that are not low-bit).
void bench_tile(Isa isa, const std::vector<std::string>& wanted) {
  const LinearKernels& kernels = linear_kernels(isa);
  ThreadTeam team(1);
  fmt::print("| layout | K |");
  const std::vector<int32_t> rows = {1, 2, 3, 4, 6, 8, 12, 16};
  for (int32_t r : rows) fmt::print(" {} |", r);
  fmt::print(" GMAC/s, one core, {}\n", isa_name(isa));
  for (int l = 0; l < kLayouts; ++l) {
    if (wanted.empty() ? l >= 8 : std::ranges::find(wanted, kLayoutNames[l]) == wanted.end()) continue;
    for (int64_t cols : {2048, 768}) {
      const PackedShape shape = packed_shape(static_cast<Layout>(l), cols);
      constexpr int64_t kTiles = 4;
      std::byte* data = huge(static_cast<size_t>(shape.tile_bytes * kTiles));
      fill_tiles(data, shape, kTiles, team);
      fmt::print("| {} | {} |", kLayoutNames[l], cols);
      for (int32_t r : rows) {
        const int64_t calls = std::max<int64_t>(1, 40'000'000 / (cols * 16 * r));
        fmt::print(" {:.0f} |", static_cast<double>(cols * 16 * r) /
                                    tile_seconds(kernels, shape, data, kTiles, r, calls, false) / 1e9);
      }
      fmt::print("\n");
      std::free(data);
    }
  }
}

/// ns for a block (16 outputs, 32 values) at K = 2048 in cache, and from memory at 1 and 4 rows.
void bench_blocks(Isa isa, const std::vector<std::string>& wanted) {
  const LinearKernels& kernels = linear_kernels(isa);
  ThreadTeam team(1);
  fmt::print("| layout | 1 | 2 | 4 | 8 | 16 | memory, 1 | GB/s | memory, 4 | ns a block, {}\n", isa_name(isa));
  for (int l = 0; l < kLayouts; ++l) {
    if (!wanted.empty() && std::ranges::find(wanted, kLayoutNames[l]) == wanted.end()) continue;
    const PackedShape shape = packed_shape(static_cast<Layout>(l), 2048);
    const int64_t many = (int64_t{600} << 20) / shape.tile_bytes;
    std::byte* data = huge(static_cast<size_t>(shape.tile_bytes * many));
    fill_tiles(data, shape, many, team);
    fmt::print("| {} |", kLayoutNames[l]);
    const auto ns = [&](int64_t tiles, int32_t r, int64_t calls) {
      return tile_seconds(kernels, shape, data, tiles, r, calls, true) / shape.blocks * 1e9;
    };
    for (int32_t r : {1, 2, 4, 8, 16}) fmt::print(" {:.1f} |", ns(2, r, 3000 / r));
    const double one = ns(many, 1, many / 2);
    fmt::print(" {:.1f} | {:.1f} | {:.1f} |\n", one,
               static_cast<double>(shape.tile_bytes) / static_cast<double>(shape.blocks) / one, ns(many, 4, many / 2));
    std::free(data);
  }
}

struct ExpertShape {
  int64_t hidden, inner, experts, top_k;
};

void bench_experts(Isa isa, const ExpertShape& shape, int64_t layers) {
  const LinearKernels& linear = linear_kernels(isa);
  const int threads = 2;
  ThreadTeam team(threads);
  const PackedShape in = packed_shape(Layout::q4_0, shape.hidden), out = packed_shape(Layout::q4_0, shape.inner);
  const int64_t in_tiles = shape.experts * shape.inner / 16, out_tiles = shape.experts * shape.hidden / 16;
  const auto layer_bytes = static_cast<size_t>(2 * in_tiles * in.tile_bytes + out_tiles * out.tile_bytes);
  std::byte* memory = huge(layer_bytes * static_cast<size_t>(layers));
  Weight gate_source, down_source;
  gate_source.rows = shape.inner;
  gate_source.cols = shape.hidden;
  down_source.rows = shape.hidden;
  down_source.cols = shape.inner;
  struct Layer {
    Matrix gate, up, down;
  };
  std::vector<Layer> all;
  std::byte* next = memory;
  const auto make = [&](const Weight& source, const PackedShape& packed, int64_t tiles) {
    Matrix m;
    m.source = &source;
    m.quantised = true;
    m.packed = {packed, source.rows, source.cols, shape.experts, tiles / shape.experts, next};
    m.tiles = tiles / shape.experts;
    m.tile_bytes = packed.tile_bytes;
    fill_tiles(next, packed, tiles, team);
    next += tiles * packed.tile_bytes;
    return m;
  };
  for (int64_t l = 0; l < layers; ++l) {
    Layer layer;
    layer.gate = make(gate_source, in, in_tiles);
    layer.up = make(gate_source, in, in_tiles);
    layer.down = make(down_source, out, out_tiles);
    all.push_back(layer);
  }
  const double bandwidth = read_bandwidth(memory, layer_bytes * static_cast<size_t>(layers), team);
  fmt::print("{} experts of {}, top {}, hidden {}, {} layers, {:.2f} GB, {}, {} threads; read bandwidth {:.1f} GB/s\n",
             shape.experts, shape.inner, shape.top_k, shape.hidden, layers,
             static_cast<double>(layer_bytes) * static_cast<double>(layers) / 1e9, isa_name(isa), threads, bandwidth);
  fmt::print(
      "| rows | ms a layer | spread | distinct | GB/s | % of bandwidth | GMAC/s |\n|---|---|---|---|---|---|---|\n");
  std::mt19937 random(1);
  for (int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 512}) {
    ExpertPass pass(linear, elementwise_kernels(isa), threads);
    const auto x = cohort::testing::random_rows(rows, shape.hidden, 1, false);
    ActivationBuffer quant;
    quant.reserve(rows, shape.hidden, layout_info(Layout::q4_0).sums);
    for (int64_t r = 0; r < rows; ++r)
      linear.quantise(x.data() + r * shape.hidden, in.blocks, quant.chunk(r / 16, rows), static_cast<int32_t>(r % 16));
    std::vector<float> y(static_cast<size_t>(rows * shape.hidden));
    const std::vector<float> weights(static_cast<size_t>(rows * shape.top_k), 0.125F);
    std::vector<double> times;
    double distinct = 0, passes = 0;
    const int repeats = rows >= 128 ? 3 : 15;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      double seconds = 0;
      for (Layer& layer : all) {
        std::vector<int32_t> routes, order(static_cast<size_t>(shape.experts));
        for (int32_t e = 0; e < shape.experts; ++e) order[static_cast<size_t>(e)] = e;
        for (int64_t r = 0; r < rows; ++r) {
          std::ranges::shuffle(order, random);
          routes.insert(routes.end(), order.begin(), order.begin() + shape.top_k);
        }
        RouteGroups groups;
        groups.build(routes, static_cast<int32_t>(shape.top_k), static_cast<int32_t>(shape.experts));
        distinct += static_cast<double>(groups.groups().size());
        ++passes;
        const ExpertMatrices matrices{&layer.gate, &layer.up, &layer.down, Activation::silu};
        const double start = now();
        pass.begin({&matrices, &groups, weights.data(), &quant, nullptr, rows, y.data()});
        team.run(pass.gate_up_jobs(), [&](int64_t job, int thread) { pass.gate_up(job, thread); });
        team.run(pass.down_jobs(), [&](int64_t job, int thread) { pass.down(job, thread); });
        seconds += now() - start;
      }
      if (repeat > 0) times.push_back(seconds / static_cast<double>(layers));
    }
    const double ms = median(times) * 1e3;
    const double read = distinct / passes * static_cast<double>(layer_bytes) / static_cast<double>(shape.experts);
    const double macs = static_cast<double>(rows * shape.top_k * 3 * shape.hidden * shape.inner);
    const auto [low, high] = std::ranges::minmax(times);
    fmt::print("| {} | {:.3f} | {:.3f}-{:.3f} | {:.1f} | {:.1f} | {:.0f} | {:.0f} |\n", rows, ms, low * 1e3, high * 1e3,
               distinct / passes, read / ms / 1e6, read / ms / 1e4 / bandwidth, macs / ms / 1e6);
  }
  std::free(memory);
}

/// qwen3-moe-mini with random bytes for weights: only speed matters.
class FastStore final : public WeightStore {
 public:
  explicit FastStore(TensorType type) : type_(type) {}
  bool has(const std::string& name) const override { return name.find("bias") == std::string::npos; }
  std::vector<std::string> unused() const override { return {}; }

 protected:
  Expected<Weight> find_matrix(const std::string& name, int64_t rows, int64_t cols, int64_t experts) override {
    Weight w;
    w.name = name;
    w.type = type_;
    if (type_ == TensorType::q4_k &&
        (name.find("attn_v") != std::string::npos || name == "output" || name.find("ffn_down") != std::string::npos))
      w.type = cols % 256 == 0 ? TensorType::q6_k : TensorType::q8_0;
    if (name.find("ffn_gate_inp") != std::string::npos) w.type = TensorType::f32;
    w.experts = experts;
    w.rows = rows;
    w.cols = cols;
    const TypeInfo& info = type_info(w.type);
    auto* data = static_cast<std::byte*>(std::malloc(w.bytes()));
    std::minstd_rand random(static_cast<unsigned>(std::hash<std::string>{}(name)));
    for (size_t i = 0; i + 4 <= w.bytes(); i += 4) {
      const uint32_t word = random() * 3U;
      std::memcpy(data + i, &word, 4);
    }
    if (w.type == TensorType::f32) {
      for (size_t i = 0; i < w.bytes() / 4; ++i) {
        const float value = static_cast<float>(random() % 2001) * 1e-4F - 0.1F;
        std::memcpy(data + 4 * i, &value, 4);
      }
    } else {
      const size_t at = w.type == TensorType::q6_k ? 208 : 0;
      for (size_t b = 0; b < w.bytes() / info.block_bytes; ++b) {
        // +-2^-10: with one sign, the mean of the codes would send all rows to the same experts.
        const auto scale = static_cast<uint16_t>(0x1400U | (random() >> 15 & 1U) << 15);
        std::memcpy(data + b * info.block_bytes + at, &scale, 2);
        if (w.type == TensorType::q4_k) std::memcpy(data + b * info.block_bytes + 2, &scale, 2);
      }
    }
    for (int64_t e = 0; e < experts; ++e) w.slices.push_back(data + static_cast<size_t>(e) * w.slice_bytes());
    return w;
  }
  Expected<std::vector<float>> find_vector(const std::string&, int64_t size) override {
    return std::vector<float>(static_cast<size_t>(size), 1.0F);
  }

 private:
  TensorType type_;
};

void bench_steps(Isa isa, TensorType type, int32_t layers) {
  ModelConfig c;
  c.architecture = "qwen3moe";
  c.layers = layers;
  c.hidden = 1024;
  c.heads = 16;
  c.kv_heads = 4;
  c.head_dim = 128;
  c.rotary_dims = 128;
  c.vocabulary = 32000;
  c.context = 1024;
  c.experts = 64;
  c.top_k = 8;
  c.expert_inner = 384;
  FastStore store(type);
  RopeTables rope = make_rope_tables(c);
  rope.full.fill(c.context);
  const auto program = find_family(c.architecture)->build(c, rope, store);
  if (!program) throw std::runtime_error(program.error().message);
  const double start = now();
  auto backend = make_cpu_backend(*program, {.isa = isa});
  if (!backend) throw std::runtime_error(backend.error().message);
  fmt::print("{}, {}, {} layers, packed {:.0f} MB in {:.2f} s\n", (*backend)->description(), type_info(type).name,
             layers, static_cast<double>((*backend)->packed_bytes()) / 1e6, now() - start);
  constexpr int32_t kPages = 8;
  if (!(*backend)->allocate_cache(TensorType::f16, 64 * kPages)) throw std::runtime_error("no memory for the cache");
  std::mt19937 random(1);
  fmt::print("| streams | ms | spread | tok/s | GB/s | distinct |\n");
  for (int32_t streams : {1, 2, 4, 8, 16, 32, 64, 512}) {
    const bool prefill = streams == 512;
    std::vector<std::vector<int32_t>> pages(static_cast<size_t>(prefill ? 1 : streams));
    for (size_t s = 0; s < pages.size(); ++s) {
      for (int32_t i = 0; i < (prefill ? 16 : kPages); ++i) pages[s].push_back(static_cast<int32_t>(s) * kPages + i);
    }
    std::vector<double> times;
    double bytes = 0, distinct = 0;
    StepProfile profile;
    const int steps = prefill ? 4 : streams >= 16 ? 12 : 24;
    for (int step = 0; step < steps; ++step) {
      Batch batch;
      for (int32_t s = 0; s < static_cast<int32_t>(pages.size()); ++s) {
        const int32_t rows = prefill ? streams : 1;
        const int32_t first = prefill ? 0 : 128 + step;
        batch.sequences.push_back({batch.rows(), rows, first, pages[static_cast<size_t>(s)]});
        for (int32_t i = 0; i < rows; ++i) {
          batch.tokens.push_back(static_cast<int32_t>(random() % 32000));
          batch.positions.push_back(first + i);
        }
        batch.sampled_rows.push_back(batch.rows() - 1);
      }
      std::vector<float> logits(batch.sampled_rows.size() * 32000);
      if (step == steps / 2) (*backend)->set_profile(&profile);
      const auto stats = (*backend)->run(batch, logits);
      if (step > 1 && step < steps / 2) times.push_back(stats->seconds);
      bytes = stats->bytes;
      distinct = stats->distinct_experts;
    }
    (*backend)->set_profile(nullptr);
    if (times.empty()) times.push_back(profile.seconds / static_cast<double>(profile.steps));
    const double s = median(times);
    const auto [low, high] = std::ranges::minmax(times);
    fmt::print("| {} | {:.2f} | {:.2f}-{:.2f} | {:.0f} | {:.1f} | {:.1f} |\n", streams, s * 1e3, low * 1e3, high * 1e3,
               streams / s, bytes / s / 1e9, distinct);
    std::vector<std::pair<double, std::string>> kinds;
    for (size_t i = 0; i < program->ops.size(); ++i) {
      const std::string kind(kind_name(program->ops[i].action));
      auto it = std::ranges::find(kinds, kind, &std::pair<double, std::string>::second);
      if (it == kinds.end()) it = kinds.insert(kinds.end(), {0.0, kind});
      it->first += profile.ops[i].busy_seconds;
    }
    std::ranges::sort(kinds, std::greater{});
    double wait = 0;
    for (const auto& stage : profile.stages) {
      for (double w : stage.wait_seconds) wait += w;
    }
    const double per = 1e3 / static_cast<double>(profile.steps);
    fmt::print("   profiled {:.2f} ms; wait {:.2f} ms over {} threads, serial {:.3f} ms, busy:", profile.seconds * per,
               wait * per, (*backend)->threads(), profile.serial_seconds * per);
    for (const auto& [seconds, kind] : kinds) fmt::print(" {} {:.2f}", kind, seconds * per);
    fmt::print("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const auto isa = parse_isa(argc > 2 ? argv[2] : "auto");
  if (!isa) {
    fmt::print("{}\n", isa.error().message);
    return 1;
  }
  const std::string third = argc > 3 ? argv[3] : "";
  const std::vector<std::string> names(argv + std::min(argc, 3), argv + argc);
  if (what == "tile") {
    bench_tile(*isa, names);
  } else if (what == "blocks") {
    bench_blocks(*isa, names);
  } else if (what == "experts") {
    if (third == "mini") {
      bench_experts(*isa, {1024, 384, 64, 8}, 12);
    } else {
      bench_experts(*isa, {2048, 768, 128, 8}, 5);
    }
  } else if (what == "steps") {
    bench_steps(*isa, third == "q4_k" ? TensorType::q4_k : TensorType::q4_0, argc > 4 ? std::atoi(argv[4]) : 12);
  } else {
    fmt::print("usage: bench_cpu tile|blocks|experts|steps [isa] [mini|30b|q4_0|q4_k] [layers]\n");
    return 1;
  }
  return 0;
}
