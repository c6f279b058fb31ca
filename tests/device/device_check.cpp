// The whole device suite in one program: bits against the reference, invariance at a real shape, and the speed ladder.
//
//   device_check bits [PART...]    every format, shape and kind of batch against the scalar reference; only programs
//                                  whose name has one of the parts, or a share of them ("2/8"); processes that share
//                                  a machine should have some of its cores each (DEVICE_CHECK_THREADS=2)
//   device_check speed [TYPE...]   qwen3-30b-a3b with random weights: prefill, decode ladder, attribution; with
//                                  DEVICE_CHECK_CACHE=q8_0 on another cache, then not in h200-steps.csv
//   device_check ladder [TYPE] B...  as speed, of q4_0 if no type is named, at these B alone
//   device_check climb [B]         decode at every B from 1 to 65, or to B
//   device_check host MODEL B...   a file or the name of a synthetic model: all, half and none of the experts on the
//                                  device, and the CPU; the same tokens, and tokens a second at B streams; with
//                                  DEVICE_CHECK_COUNTS=FILE half once more, by an importance matrix
//   device_check canvas_bits [PART...]  block diffusion against the reference, bit by bit; programs as above
//   device_check canvas MODEL B... a file or the name of a synthetic model of block diffusion on the device and the
//   CPU:
//                                  the same tokens, and steps of B streams
//   device_check probe B [prefill] one step for a profiler, then their prompts
//   device_check stamps B FILE [TYPE]  where each block of a decode step was when (builds with
//                                  -DCOHORT_CUDA_STAMPS=ON)
//
// Exit code 1 when a bit differs. Prints tables; the ladder also goes to h200-steps.csv in the current folder.
#include <cuda_profiler_api.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>

#include "canvas_check.h"
#include "host_check.h"
#include "kernels/cuda/backend.h"
#include "kernels/reference/backend.h"
#include "kv/cache.h"
#include "parts.h"
#include "synthetic.h"
#include "top_check.h"

namespace cohort::device_check {
namespace {

constexpr double kReadBandwidth =
    4.54e12;  // bytes a second: read-only stream measured on this card (docs/perf/h200.md)

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] void stop(const Error& error) {
  std::printf("error: %s\n", error.message.c_str());
  std::exit(2);
}
template <class T>
T must(Expected<T>&& value) {
  if (!value) stop(value.error());
  return std::move(*value);
}
void must(Expected<void>&& value) {
  if (!value) stop(value.error());
}

/// Sequences with pages handed out in a scattered order.
class Streams {
 public:
  Streams(int32_t count, int32_t positions, int32_t total_pages)
      : pages_(static_cast<size_t>(count)), length_(pages_.size(), 0) {
    std::vector<int32_t> order(static_cast<size_t>(total_pages));
    std::iota(order.begin(), order.end(), 0);
    uint64_t state = 99;
    for (size_t i = order.size(); i > 1; --i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      std::swap(order[i - 1], order[(state >> 33) % i]);
    }
    size_t next = 0;
    const auto each = static_cast<size_t>((positions + kPagePositions - 1) / kPagePositions);
    for (auto& pages : pages_) {
      for (size_t i = 0; i < each; ++i) pages.push_back(order[next++]);
    }
  }
  static int32_t pages_for(int32_t count, int32_t positions) {
    return count * ((positions + kPagePositions - 1) / kPagePositions);
  }
  /// Appends `rows` tokens of sequence `s` to the batch.
  void append(Batch& batch, int32_t s, const std::vector<int32_t>& tokens, bool sample_last, bool sample_all = false) {
    const auto i = static_cast<size_t>(s);
    const auto rows = static_cast<int32_t>(tokens.size());
    batch.sequences.push_back({batch.rows(), rows, length_[i], pages_[i]});
    for (int32_t r = 0; r < rows; ++r) {
      if (sample_all || (sample_last && r + 1 == rows)) batch.sampled_rows.push_back(batch.rows());
      batch.tokens.push_back(tokens[static_cast<size_t>(r)]);
      batch.positions.push_back(length_[i] + r);
    }
    length_[i] += rows;
  }
  void rewind(int32_t s, int32_t length) { length_[static_cast<size_t>(s)] = length; }
  int32_t length(int32_t s) const { return length_[static_cast<size_t>(s)]; }

 private:
  std::vector<std::vector<int32_t>> pages_;
  std::vector<int32_t> length_;
};

int32_t token(int32_t sequence, int32_t position, int32_t vocabulary) {
  uint64_t x = (static_cast<uint64_t>(sequence) << 32 | static_cast<uint32_t>(position)) * 0x9E3779B97F4A7C15U;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9U;
  return static_cast<int32_t>((x >> 33) % static_cast<uint64_t>(vocabulary));
}
std::vector<int32_t> tokens(int32_t sequence, int32_t from, int32_t count, int32_t vocabulary) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < count; ++i) out.push_back(token(sequence, from + i, vocabulary));
  return out;
}

struct Difference {
  int64_t values = 0, different = 0;
  double worst = 0;
  std::string first;
};
void compare(const std::vector<float>& a, const std::vector<float>& b, const char* what, Difference& d) {
  for (size_t i = 0; i < a.size(); ++i) {
    ++d.values;
    uint32_t x, y;
    std::memcpy(&x, &a[i], 4);
    std::memcpy(&y, &b[i], 4);
    const bool both_nan = a[i] != a[i] && b[i] != b[i];
    if (x == y || both_nan) continue;
    if (d.different++ == 0) {
      char text[160];
      std::snprintf(text, sizeof text, "%s, value %zu: %.9g instead of %.9g", what, i, static_cast<double>(b[i]),
                    static_cast<double>(a[i]));
      d.first = text;
    }
    d.worst = std::max(d.worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
}

/// Which experts stay on the device.
struct Stay {
  double share = 1;        // of their bytes
  bool by_counts = false;  // in every layer, instead of whole layers in order
};

/// The least memory in which that share of the experts fits.
void limit_memory(CudaOptions& options, const Program& program, const Stay& stay) {
  if (stay.share >= 1) return;
  const DeviceNeeds needs = must(cuda_memory_needs(program, options.max_rows));
  double experts = 0;
  for (const ExpertLayer& layer : needs.layers) {
    experts += static_cast<double>(layer.bytes) * layer.experts;
    if (!stay.by_counts) continue;
    auto& counts = options.expert_counts.emplace_back();
    for (int32_t e = 0; e < layer.experts; ++e) counts.push_back(static_cast<float>(e * 7 % layer.experts));
  }
  options.counts_from = "made-up counts";
  options.memory_limit = needs.fixed + static_cast<size_t>(experts * stay.share);
}

/// Runs the same batches on both and compares all logits: a prefill of several sequences, decode steps of growing
/// company, a mixed batch.
bool check_bits(const Shape& shape, const Types& types, TensorType cache, int32_t prompt, const char* label,
                const Stay& stay = {}) {
  const double start = now();
  SyntheticModel model(shape, types, 17, false);
  const int32_t vocabulary = shape.vocabulary;
  auto reference = make_reference_backend(model.program(), {threads(), ActivationMode::canonical});
  CudaOptions options;
  options.threads = threads();
  options.max_rows = 256;
  limit_memory(options, model.program(), stay);
  auto made = make_cuda_backend(model.program(), options);
  if (!made) {
    std::printf("%-34s %s\n", label, made.error().message.c_str());
    return false;
  }
  auto device = std::move(*made);
  if (stay.share < 1) {
    std::printf("    %s\n", device->description().c_str());
    if (device->device_bytes() > options.memory_limit) {
      std::printf("%-34s takes %zu bytes of the device, %zu are allowed\n", label, device->device_bytes(),
                  options.memory_limit);
      return false;
    }
  }
  constexpr int32_t kStreams = 70;
  const int32_t positions = prompt + 8;
  const int32_t pages = Streams::pages_for(kStreams, positions);
  must(reference->allocate_cache(cache, pages));
  must(device->allocate_cache(cache, pages));
  Streams streams(kStreams, positions, pages);
  Difference difference;
  std::string sizes;
  const auto step = [&](const Batch& batch, const char* what) {
    std::vector<float> expected(batch.sampled_rows.size() * static_cast<size_t>(vocabulary)),
        got(expected.size(), -1.0F);
    must(reference->run(batch, expected));
    must(device->run(batch, got));
    const int64_t before = difference.different;
    compare(expected, got, what, difference);
    if (difference.different != before) sizes.append(" ").append(std::to_string(batch.rows()));
  };
  {
    Batch batch;  // one long prompt: chunks of max_rows on the device, or few rows when it is short
    streams.append(batch, 0, tokens(0, 0, prompt, vocabulary), true);
    step(batch, "a prompt");
  }
  {
    Batch batch;  // several short prompts in one batch
    for (int32_t s = 1; s < kStreams; ++s) streams.append(batch, s, tokens(s, 0, 1 + s % 3, vocabulary), s % 2 == 0);
    step(batch, "many prompts");
  }
  for (int32_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 33, 64, 65}) {
    Batch batch;
    for (int32_t s = 0; s < rows; ++s) {
      if (streams.length(s) >= positions) streams.rewind(s, positions - 2);
      streams.append(batch, s, tokens(s, streams.length(s), 1, vocabulary), true);
    }
    step(batch, "a decode step");
  }
  {
    Batch batch;  // rows that choose the same experts
    for (int32_t s = 20; s < 36; ++s) {
      streams.rewind(s, 0);
      streams.append(batch, s, tokens(1, 0, 1, vocabulary), true);
    }
    step(batch, "rows alike");
  }
  {
    Batch batch;  // decode rows, a window and a prompt piece
    streams.rewind(2, 1);
    streams.rewind(3, 0);
    streams.rewind(0, prompt - 1);
    streams.append(batch, 0, tokens(0, 1, 1, vocabulary), true);
    streams.append(batch, 2, tokens(2, 4, 4, vocabulary), true, true);
    streams.append(batch, 3, tokens(3, 0, 7, vocabulary), false);
    step(batch, "a mixed batch");
  }
  std::printf("%-34s %9lld values %6lld differ  kernels %lld, submissions %lld, %.0f s%s%s%s%s\n", label,
              static_cast<long long>(difference.values), static_cast<long long>(difference.different),
              static_cast<long long>(device->kernels()), static_cast<long long>(device->submissions()), now() - start,
              difference.different > 0 ? "  first: " : "", difference.first.c_str(),
              difference.different > 0 ? "  rows:" : "", difference.different > 0 ? sizes.c_str() : "");
  std::fflush(stdout);
  if (device->submissions() != 1) {
    std::printf("%-34s a step took %lld submissions instead of one\n", label,
                static_cast<long long>(device->submissions()));
    return false;
  }
  return difference.different == 0;
}

/// With the graph a step is one submission; with the off-switch every kernel is its own, and the bits are the same.
bool check_launches(const Shape& shape, const Types& types, const Stay& stay = {}) {
  SyntheticModel model(shape, types, 17, false);
  std::vector<std::vector<float>> logits;
  bool good = true;
  for (bool graph : {true, false}) {
    CudaOptions options;
    options.threads = threads();
    options.max_rows = 256;
    options.graph = graph;
    limit_memory(options, model.program(), stay);
    auto device = must(make_cuda_backend(model.program(), options));
    const int32_t pages = Streams::pages_for(9, 40);
    must(device->allocate_cache(TensorType::f16, pages));
    Streams streams(9, 40, pages);
    for (int32_t rows : {200, 1, 9}) {
      Batch batch;
      if (rows == 200) {
        for (int32_t s = 0; s < 9; ++s) streams.append(batch, s, tokens(s, 0, 22, shape.vocabulary), true);
      } else {
        for (int32_t s = 0; s < rows; ++s) streams.append(batch, s, tokens(s, 22, 1, shape.vocabulary), true);
      }
      std::vector<float> out(batch.sampled_rows.size() * static_cast<size_t>(shape.vocabulary));
      must(device->run(batch, out));
      logits.push_back(std::move(out));
      good &= device->submissions() == (graph ? 1 : device->kernels());
    }
  }
  for (size_t i = 0; i < 3; ++i) good &= std::memcmp(logits[i].data(), logits[i + 3].data(), logits[i].size() * 4) == 0;
  std::printf("launches: with the graph one a step, without it one a kernel, same bits: %s\n", good ? "yes" : "NO");
  return good;
}

constexpr TensorType F32 = TensorType::f32, F16 = TensorType::f16, BF = TensorType::bf16;
constexpr TensorType Q4 = TensorType::q4_0, Q8 = TensorType::q8_0, K4 = TensorType::q4_k, K6 = TensorType::q6_k;

/// The programs of `parts` (asked_for), after the checks that are no programs.
bool all_bits(bool quick, const std::vector<std::string>& parts) {
  //                      name       L  hid  h kv  dim inner E  k vocab ctx
  const Shape small = {"small", 2, 256, 4, 2, 64, 96, 16, 4, 320, 1024};
  const Shape windowed = {"windowed", 2, 512, 8, 1, 128, 128, 24, 3, 256, 1024, 300, false, true, true};
  const Shape dense = {"dense", 2, 704, 6, 3, 32, 1408, 0, 0, 240, 1024, 0, true};
  const Shape real = {"real", 1, 2048, 32, 4, 128, 768, 128, 8, 512, 1024};
  const Shape far = {"far", 1, 2048, 32, 4, 128, 768, 128, 8, 512, 4096};
  const Shape mini = {"mini", 2, 1024, 16, 4, 128, 384, 64, 8, 256, 1024};
  const Shape kquant = {"kquant", 2, 512, 8, 2, 64, 256, 16, 4, 256, 1024};
  const Shape gemma = {"gemma", 1, 2816, 4, 2, 256, 704, 16, 8, 256, 1024, 100};
  const Shape crowded = {"crowded", 2, 256, 4, 2, 64, 256, 3, 2, 320, 1024};  // 9 to 32 rows, few routes, fewer experts
  const Shape wide = {"wide", 1, 256, 64, 4, 64, 256, 8, 2, 256, 1024};
  bool good = true;
  int32_t number = 0;
  if (asked_for(parts, number++, "launches")) {
    good &= check_launches(small, {Q4, Q4, Q4, Q4, Q4});
    good &= check_launches(small, {Q4, Q4, Q4, Q4, Q4}, {0.5, true});
  }
  if (asked_for(parts, number++, "largest logits and draws")) good &= check_top();
  const auto check = [&](const Shape& s, const Types& t, TensorType cache, int32_t prompt, const char* label,
                         const Stay& stay = {}) {
    if (asked_for(parts, number++, label)) good &= check_bits(s, t, cache, prompt, label, stay);
  };
  check(small, {Q4, Q4, Q4, Q4, Q4}, TensorType::f16, 40, "q4_0, small");
  check(small, {Q8, Q8, Q8, Q8, Q8}, TensorType::f32, 600, "q8_0, small, f32 cache, 600");
  check(windowed, {Q4, Q8, Q4, Q8, Q8}, TensorType::bf16, 700, "q4_0 and q8_0, window, bf16 cache");
  check(dense, {Q4, Q4, Q4, Q4, Q8}, TensorType::f16, 100, "q4_0, dense");
  check(kquant, {K4, K6, K4, K6, K6}, TensorType::f16, 300, "q4_k and q6_k");
  check(real, {Q4, Q4, Q4, Q4, Q4}, TensorType::f16, 20, "q4_0, qwen3-30b-a3b's layer");
  check(real, {Q4, Q4, Q4, Q4, Q4}, TensorType::f16, 255, "q4_0, qwen3-30b-a3b's layer, 255");
  check(real, {Q8, Q8, Q8, Q8, Q8}, TensorType::f16, 300, "q8_0, qwen3-30b-a3b's layer, 300");
  check(real, {K4, K6, K4, K6, K6}, TensorType::f16, 600, "q4_k_m, qwen3-30b-a3b's layer, 600");
  check(far, {Q4, Q4, Q4, Q4, Q4}, TensorType::f16, 1100, "q4_0, qwen3-30b-a3b's layer, 1100");
  check(far, {Q8, Q8, Q8, Q8, Q8}, TensorType::f16, 2060, "q8_0, qwen3-30b-a3b's layer, 2060");
  check(far, {K4, K6, K4, K6, K6}, TensorType::f16, 1100, "q4_k_m, qwen3-30b-a3b's layer, 1100");
  check(mini, {Q4, Q4, Q4, Q4, Q4}, TensorType::f16, 20, "q4_0, qwen3-moe-mini's layers");
  check(mini, {Q4, Q4, Q4, Q4, Q4}, TensorType::f16, 600, "q4_0, mini's layers, 600");
  check(gemma, {Q8, Q8, Q4, Q4, Q8}, TensorType::f16, 270, "gemma's sizes");
  check(wide, {Q8, K6, Q8, K4, K6}, TensorType::f16, 20, "K = 4096 in two parts");
  check(crowded, {Q4, Q4, Q4, Q4, Q4}, TensorType::f16, 20, "q4_0, three experts");
  if (!quick) {
    using T = TensorType;
    for (const auto& [type, name] : {std::pair{T::q4_1, "q4_1"},
                                     {T::q5_0, "q5_0"},
                                     {T::q5_1, "q5_1"},
                                     {T::q2_k, "q2_k"},
                                     {T::q3_k, "q3_k"},
                                     {T::q5_k, "q5_k"},
                                     {T::iq4_nl, "iq4_nl"},
                                     {T::iq4_xs, "iq4_xs"},
                                     {T::iq3_s, "iq3_s"},
                                     {T::iq2_xxs, "iq2_xxs"},
                                     {T::mxfp4, "mxfp4"},
                                     {T::nvfp4, "nvfp4"}}) {
      check(kquant, {type, type, type, type, type}, TensorType::f16, 20, name);
    }
    check(small, {TensorType::f16, Q8, Q4, Q4, TensorType::f32}, TensorType::f16, 20, "float attention and head");
    check(small, {Q4, Q4, Q4, Q8, Q4}, TensorType::f16, 20, "mixed down");
  }
  {
    // Float weights: K that is no whole number of blocks, K above and below a chunk of shared memory, entries of many
    // routes, and what stands beside int8 matrices.
    const Shape odd = {"odd", 2, 208, 4, 2, 24, 76, 16, 4, 250, 1024};
    const Shape tall = {"tall", 1, 264, 4, 2, 64, 5000, 0, 0, 240, 1024, 0, true};
    const Shape crowded = {"crowded", 1, 256, 4, 2, 64, 96, 4, 2, 256, 1024};
    const Shape router = {"router", 1, 4224, 2, 1, 32, 64, 16, 4, 64, 1024};
    const TensorType fp8 = TensorType::fp8_e4m3;
    check(small, {BF, BF, BF, BF, BF}, TensorType::f16, 40, "floats: bf16, small");
    check(small, {F16, F16, F16, F16, F16}, TensorType::f32, 300, "floats: f16, small, 300");
    check(odd, {F32, F32, F32, F32, F32}, TensorType::f32, 40, "floats: f32, odd sizes");
    check(odd, {BF, F16, BF, F16, BF}, TensorType::f16, 40, "floats: bf16 and f16, odd sizes");
    check(tall, {BF, BF, BF, F32, F16}, TensorType::f16, 100, "floats: dense, K = 5000");
    check(crowded, {F16, F16, BF, BF, F32}, TensorType::f16, 250, "floats: entries of many routes");
    check(real, {BF, BF, BF, BF, BF}, TensorType::f16, 20, "floats: bf16, qwen3-30b-a3b's layer");
    check(gemma, {BF, BF, F16, BF, BF}, TensorType::bf16, 270, "floats: gemma's sizes");
    check(router, {Q4, Q4, Q4, Q4, Q4}, TensorType::f16, 20, "floats: a router of 4224 inputs");
    check(small, {Q8, Q8, BF, Q8, Q8}, TensorType::f16, 100, "floats: bf16 gate and up, q8_0 down");
    check(small, {Q8, Q8, Q4, F16, Q8}, TensorType::f16, 100, "floats: q4_0 gate and up, f16 down");
    check(small, {fp8, fp8, fp8, fp8, BF}, TensorType::f16, 40, "floats: fp8 as f32");
  }
  {
    const Shape forty = {"forty", 2, 160, 4, 4, 40, 96, 8, 2, 160, 1024};
    const TensorType cache = TensorType::q8_0;
    check(small, {Q4, Q4, Q4, Q4, Q4}, cache, 600, "q8_0 cache, 600");
    check(windowed, {Q4, Q8, Q4, Q8, Q8}, cache, 700, "q8_0 cache, window, one kv head");
    check(real, {Q4, Q4, Q4, Q4, Q4}, cache, 300, "q8_0 cache, qwen3-30b-a3b's layer");
    check(gemma, {Q8, Q8, Q4, Q4, Q8}, cache, 270, "q8_0 cache, gemma's sizes");
    check(forty, {F16, F16, F16, F16, F16}, cache, 80, "q8_0 cache, heads of 40");
  }
  {
    // gpt-oss: sinks, biases everywhere, clamped gates.
    const TensorType mxfp4 = TensorType::mxfp4;
    const Shape oss = {"oss", 2, 256, 8, 2, 64, 96, 16, 4, 320, 1024, 100, false, false, true, true};
    const Shape broad = {"broad", 2, 512, 8, 1, 128, 256, 16, 4, 320, 1024, 100, false, false, true, true};
    const Shape layer = {"layer", 1, 2880, 64, 8, 64, 2880, 8, 4, 256, 1024, 0, false, false, true, true};
    const Shape pairs = {"pairs", 1, 2048, 8, 2, 64, 768, 16, 4, 256, 1024, 0, false, false, true, true};
    const Shape odd = {"odd", 2, 208, 4, 2, 24, 76, 16, 4, 250, 1024, 40, false, false, true, true};
    check(oss, {BF, BF, mxfp4, mxfp4, BF}, TensorType::f16, 300, "gpt-oss: mxfp4, small, 300");
    check(oss, {Q8, Q8, Q8, Q8, Q8}, TensorType::q8_0, 600, "gpt-oss: q8_0 and its cache, 600");
    check(broad, {Q4, Q4, Q4, Q4, Q4}, TensorType::bf16, 300, "gpt-oss: q4_0, heads of 128, bf16 cache");
    check(odd, {BF, F16, BF, F16, BF}, TensorType::f32, 80, "gpt-oss: floats, odd sizes");
    check(oss, {Q8, Q8, Q4, F16, Q8}, TensorType::f16, 100, "gpt-oss: q4_0 gate and up, f16 down");
    check(oss, {K4, K4, BF, Q8, Q8}, TensorType::f16, 40, "gpt-oss: bf16 gate and up, q8_0 down");
    check(pairs, {Q4, Q4, Q4, Q4, Q4}, TensorType::f16, 40, "gpt-oss: q4_0, tiles in pairs");
    check(layer, {BF, BF, mxfp4, mxfp4, BF}, TensorType::f16, 20, "gpt-oss: its layer");
    check(oss, {Q8, Q8, mxfp4, mxfp4, Q8}, TensorType::f16, 100, "gpt-oss: host, by counts", {0.5, true});
  }
  {
    // Experts in host memory: none of a layer, some, all.
    check(mini, {Q4, Q4, Q4, Q4, Q4}, TensorType::f16, 600, "host: mini, all experts", {0});
    check(mini, {Q4, Q4, Q4, Q4, Q4}, TensorType::f16, 600, "host: mini, layers in order", {0.7});
    check(mini, {Q4, Q4, Q4, Q4, Q4}, TensorType::f16, 600, "host: mini, by counts", {0.5, true});
    check(real, {Q4, Q4, Q4, Q4, Q4}, TensorType::f16, 20, "host: qwen3-30b-a3b's layer", {0.4, true});
    check(kquant, {K4, K6, K4, K6, K6}, TensorType::f16, 300, "host: q4_k and q6_k", {0.5, true});
    check(gemma, {Q8, Q8, Q4, Q4, Q8}, TensorType::f16, 270, "host: gemma's sizes", {0.5, true});
    check(small, {BF, BF, BF, BF, BF}, TensorType::f16, 40, "host: bf16", {0.5, true});
    check(small, {Q8, Q8, Q4, F16, Q8}, TensorType::f16, 100, "host: q4_0 gate and up, f16 down", {0.3, true});
    check(small, {Q4, Q4, Q4, Q4, Q4}, TensorType::q8_0, 40, "host: q8_0 cache", {0.6, true});
  }
  return good;
}

struct Ladder {
  int32_t streams;
  double prefill, decode, median_ms, fastest_ms, slowest_ms, bytes, distinct;
};

constexpr Shape kQwen = {"qwen3-30b-a3b", 48, 2048, 32, 4, 128, 768, 128, 8, 151936, 1024};

Ladder measure(CudaBackend& device, int32_t count, int32_t prompt, int32_t steps, int32_t total_pages) {
  const int32_t vocabulary = kQwen.vocabulary;
  Streams streams(count, prompt + steps, total_pages);
  Ladder result{};
  result.streams = count;
  std::vector<int32_t> picked(static_cast<size_t>(count));
  Batch prompts;
  for (int32_t s = 0; s < count; ++s) streams.append(prompts, s, tokens(s, 0, prompt, vocabulary), true);
  const double start = now();
  must(device.run_greedy(prompts, picked));
  result.prefill = static_cast<double>(count) * prompt / (now() - start);
  std::vector<double> times;
  const double decode_start = now();
  for (int32_t i = 0; i < steps; ++i) {
    Batch batch;
    for (int32_t s = 0; s < count; ++s) streams.append(batch, s, {picked[static_cast<size_t>(s)]}, true);
    const StepStats stats = must(device.run_greedy(batch, picked));
    times.push_back(stats.seconds);
    result.bytes += stats.bytes / steps;
    result.distinct += stats.distinct_experts / steps;
  }
  result.decode = static_cast<double>(count) * steps / (now() - decode_start);
  std::sort(times.begin(), times.end());
  result.median_ms = times[times.size() / 2] * 1e3;
  result.fastest_ms = times.front() * 1e3;
  result.slowest_ms = times.back() * 1e3;
  return result;
}

/// Every row alone, in company and in chunks of other sizes gives the same logits, at the real shape.
bool check_invariance(CudaBackend& device, int32_t total_pages) {
  const int32_t vocabulary = kQwen.vocabulary;
  constexpr int32_t kCount = 64, kPrompt = 540, kSteps = 3, kPositions = 576;
  std::vector<float> company(static_cast<size_t>(kCount) * static_cast<size_t>(vocabulary)),
      alone(static_cast<size_t>(vocabulary));
  Streams together(kCount, kPositions, total_pages);
  std::vector<float> prompt_logits(company.size());
  Batch prompts;
  for (int32_t s = 0; s < kCount; ++s) together.append(prompts, s, tokens(s, 0, kPrompt, vocabulary), true);
  must(device.run(prompts, prompt_logits));
  std::vector<std::vector<float>> steps;
  for (int32_t i = 0; i < kSteps; ++i) {
    Batch step;
    for (int32_t s = 0; s < kCount; ++s) together.append(step, s, tokens(s, kPrompt + i, 1, vocabulary), true);
    must(device.run(step, company));
    steps.push_back(company);
  }
  Difference difference;
  // The same steps in companies of few, where a kernel runs all layers.
  for (int32_t rows : {2, 3, 4, 6, 8, 9, 11, 16}) {
    std::vector<int32_t> members;
    for (int32_t r = 0; r < rows; ++r) members.push_back((r * 9 + rows) % kCount);
    for (int32_t s : members) together.rewind(s, kPrompt);
    std::vector<float> few(members.size() * static_cast<size_t>(vocabulary));
    for (int32_t i = 0; i < kSteps; ++i) {
      Batch batch;
      for (int32_t s : members) together.append(batch, s, tokens(s, kPrompt + i, 1, vocabulary), true);
      must(device.run(batch, few));
      std::vector<float> expected;
      for (int32_t s : members) {
        const auto from = steps[static_cast<size_t>(i)].begin() + static_cast<int64_t>(s) * vocabulary;
        expected.insert(expected.end(), from, from + vocabulary);
      }
      compare(expected, few, "a decode step of few", difference);
    }
  }
  for (int32_t s : {0, 31, 63}) {
    // Alone, in pieces of 1, 7, 60 and the rest, on other pages.
    Streams single(1, kPositions, 100 + s);
    int32_t at = 0;
    for (int32_t piece : {1, 7, 60, kPrompt - 68}) {
      Batch batch;
      single.append(batch, 0, tokens(s, at, piece, vocabulary), true);
      must(device.run(batch, alone));
      at += piece;
    }
    const auto row = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + static_cast<int64_t>(s) * vocabulary,
                                all.begin() + static_cast<int64_t>(s + 1) * vocabulary);
    };
    compare(row(prompt_logits), alone, "a prompt in pieces", difference);
    for (int32_t i = 0; i < kSteps; ++i) {
      Batch batch;
      single.append(batch, 0, tokens(s, kPrompt + i, 1, vocabulary), true);
      must(device.run(batch, alone));
      compare(row(steps[static_cast<size_t>(i)]), alone, "a decode step alone", difference);
    }
  }
  std::printf("invariance at the real shape: %lld logits, %lld differ %s\n", static_cast<long long>(difference.values),
              static_cast<long long>(difference.different), difference.first.c_str());
  return difference.different == 0;
}

Types types_of(const std::string& type) {
  if (type == "q4_k_m") return {K4, K6, K4, K6, K6};
  if (type == "bf16") return {BF, BF, BF, BF, BF};
  return type == "q8_0" ? Types{Q8, Q8, Q8, Q8, Q8} : Types{Q4, Q4, Q4, Q4, Q4};
}

bool speed(const std::string& type, bool climb, bool profile, std::vector<int32_t> only = {}) {
  const Types types = types_of(type);
  const double start = now();
  SyntheticModel model(kQwen, types, 5, true);
  CudaOptions options;
  options.threads = threads();
  options.graph = std::getenv("DEVICE_CHECK_SERIAL") == nullptr;  // kernels one by one, for profilers
  auto device = must(make_cuda_backend(model.program(), options));
  constexpr int32_t kMost = 65, kPrompt = 512, kSteps = 64;
  const int32_t pages = Streams::pages_for(kMost, kPrompt + kSteps);
  const char* wanted_cache = std::getenv("DEVICE_CHECK_CACHE");
  must(device->allocate_cache(
      wanted_cache != nullptr ? find_type(std::string_view(wanted_cache))->type : TensorType::f16, pages));
  std::printf("\n%s %s: %s, ready in %.1f s\n", kQwen.name, type.c_str(), device->description().c_str(), now() - start);
  measure(*device, 1, 80, 2, pages);  // graphs are captured
  measure(*device, 16, 80, 2, pages);
  bool good = true;
  if (!climb) good = check_invariance(*device, pages);
  std::printf("%3s %9s %9s %8s %8s %8s %8s %8s %7s\n", "B", "prefill/s", "decode/s", "ms", "fastest", "slowest",
              "distinct", "GB/s", "% roof");
  std::ofstream csv("h200-steps.csv", std::ios::app);
  std::vector<int32_t> counts = {1, 2, 4, 8, 16, 32, 64};
  if (climb) {
    counts.resize(only.empty() ? 65 : static_cast<size_t>(only[0]));
    only.clear();
    std::iota(counts.begin(), counts.end(), 1);
  }
  if (!only.empty()) counts = std::move(only);
  double before = 0;
  for (int32_t count : counts) {
    std::vector<Ladder> runs;
    const int repeats = climb ? 1 : 3;
    for (int r = 0; r < repeats; ++r)
      runs.push_back(measure(*device, count, climb ? 64 : kPrompt, climb ? 24 : kSteps, pages));
    std::sort(runs.begin(), runs.end(), [](const Ladder& a, const Ladder& b) { return a.median_ms < b.median_ms; });
    const Ladder& l = runs[runs.size() / 2];
    const double floor_ms = l.bytes / kReadBandwidth * 1e3;
    std::printf("%3d %9.0f %9.0f %8.3f %8.3f %8.3f %8.1f %8.0f %7.1f%s\n", l.streams, l.prefill, l.decode, l.median_ms,
                l.fastest_ms, l.slowest_ms, l.distinct, l.bytes / l.median_ms / 1e6, 100 * floor_ms / l.median_ms,
                climb && count / l.median_ms < before ? "  falls" : "");
    std::fflush(stdout);
    before = count / l.median_ms;
    if (!climb && wanted_cache == nullptr) {
      const double pp = static_cast<double>(count) * kPrompt / l.prefill,
                   tg = static_cast<double>(count) * kSteps / l.decode;
      csv << kPrompt << ',' << kSteps << ',' << count << ',' << count * (kPrompt + kSteps) << ',' << pp << ','
          << l.prefill << ',' << tg << ',' << l.decode << ',' << pp + tg << ','
          << count * (kPrompt + kSteps) / (pp + tg) << ',' << l.median_ms << ',' << l.slowest_ms - l.fastest_ms << ','
          << l.bytes << ',' << l.distinct << ',' << l.bytes / l.median_ms / 1e6 << ',' << 100 * floor_ms / l.median_ms
          << ",NVIDIA H200," << kQwen.name << ',' << type << ",cuda\n";
    }
    if (profile && (count == 1 || count == 4 || count == 16 || count == 64)) {
      std::printf("    kernels %lld, submissions %lld; us each:", static_cast<long long>(device->kernels()),
                  static_cast<long long>(device->submissions()));
      for (const KernelTime& t : must(device->profile(count)))
        std::printf(" %s %.1f x%lld", t.kind.c_str(), t.seconds * 1e6 / static_cast<double>(t.launches),
                    static_cast<long long>(t.launches));
      std::printf("\n");
    }
  }
  if (profile) {
    Streams streams(4, kPrompt + kSteps, pages);
    Batch prompts;
    for (int32_t s = 0; s < 4; ++s) streams.append(prompts, s, tokens(s, 0, kPrompt, kQwen.vocabulary), true);
    std::vector<int32_t> picked(4);
    const StepStats stats = must(device->run_greedy(prompts, picked));
    std::printf("    prefill of 2048 rows, %.2f ms; us each:", stats.seconds * 1e3);
    for (const KernelTime& t : must(device->profile(2048)))
      std::printf(" %s %.1f x%lld", t.kind.c_str(), t.seconds * 1e6 / static_cast<double>(t.launches),
                  static_cast<long long>(t.launches));
    std::printf("\n");
  }
  return good;
}

/// One decode step of `count` streams of a few layers, kernels one by one, between the marks of a profiler:
///   ncu --profile-from-start off --clock-control none device_check probe 64
/// prefill: the prompts once more after it.
void probe(const std::string& type, int32_t count, bool prefill) {
  Shape shape = kQwen;
  shape.layers = 2;
  SyntheticModel model(shape, types_of(type), 5, true);
  CudaOptions options;
  options.threads = threads();
  options.graph = false;
  auto device = must(make_cuda_backend(model.program(), options));
  constexpr int32_t kPrompt = 512, kSteps = 4;
  const int32_t pages = Streams::pages_for(count, kPrompt + kSteps);
  must(device->allocate_cache(TensorType::f16, pages));
  Streams streams(count, kPrompt + kSteps, pages);
  std::vector<int32_t> picked(static_cast<size_t>(count));
  Batch prompts;
  for (int32_t s = 0; s < count; ++s) streams.append(prompts, s, tokens(s, 0, kPrompt, shape.vocabulary), true);
  must(device->run_greedy(prompts, picked));
  for (int32_t i = 0; i < kSteps; ++i) {
    Batch batch;
    for (int32_t s = 0; s < count; ++s) streams.append(batch, s, {picked[static_cast<size_t>(s)]}, true);
    if (i == kSteps - 1) cudaProfilerStart();
    must(device->run_greedy(batch, picked));
  }
  cudaProfilerStop();
  if (!prefill) return;
  Batch again;
  for (int32_t s = 0; s < count; ++s) {
    streams.rewind(s, 0);
    streams.append(again, s, tokens(s, 0, kPrompt, shape.vocabulary), true);
  }
  cudaProfilerStart();
  must(device->run_greedy(again, picked));
  cudaProfilerStop();
}

/// Stamps of one decode step of `count` streams of a few layers in one graph, as a table of blocks.
void stamps(int32_t count, const char* path, const std::string& type) {
  Shape shape = kQwen;
  shape.layers = 6;
  SyntheticModel model(shape, types_of(type), 5, true);
  CudaOptions options;
  options.threads = threads();
  auto device = must(make_cuda_backend(model.program(), options));
  constexpr int32_t kPrompt = 512, kSteps = 8;
  const int32_t pages = Streams::pages_for(count, kPrompt + kSteps);
  must(device->allocate_cache(TensorType::f16, pages));
  Streams streams(count, kPrompt + kSteps, pages);
  std::vector<int32_t> picked(static_cast<size_t>(count));
  Batch prompts;
  for (int32_t s = 0; s < count; ++s) streams.append(prompts, s, tokens(s, 0, kPrompt, shape.vocabulary), true);
  must(device->run_greedy(prompts, picked));
  for (int32_t i = 0; i < kSteps; ++i) {
    Batch batch;
    for (int32_t s = 0; s < count; ++s) streams.append(batch, s, {picked[static_cast<size_t>(s)]}, true);
    must(device->run_greedy(batch, picked));
  }
  std::ofstream out(path);
  for (const BlockStamps& b : must(device->stamps())) {
    out << b.launch << ' ' << b.kind << ' ' << b.second << ' ' << b.block << ' ' << b.sm << ' ' << b.start_ns;
    for (uint64_t c : b.cycles) out << ' ' << c;
    out << '\n';
  }
}

}  // namespace
}  // namespace cohort::device_check

int main(int argc, char** argv) {
  using namespace cohort::device_check;
  const std::vector<std::string> args(argv + 1, argv + argc);
  const std::string what = args.empty() ? "bits" : args[0];
  std::printf("%s\n", must(cohort::describe_cuda_device(0)).c_str());
  bool good = true;
  if (what == "bits" || what == "quick") {
    good = all_bits(what == "quick", {args.begin() + (args.empty() ? 0 : 1), args.end()});
    std::printf("bits: %s\n", good ? "all equal" : "DIFFERENCES");
  } else if (what == "probe") {
    probe("q4_0", args.size() > 1 ? std::atoi(args[1].c_str()) : 1, args.size() > 2 && args[2] == "prefill");
  } else if (what == "stamps" && args.size() >= 3) {
    stamps(std::atoi(args[1].c_str()), args[2].c_str(), args.size() > 3 ? args[3] : "q4_0");
  } else if (what == "ladder") {
    const bool named = args.size() > 1 && std::atoi(args[1].c_str()) == 0;
    std::vector<int32_t> counts;
    for (size_t i = named ? 2 : 1; i < args.size(); ++i) counts.push_back(std::atoi(args[i].c_str()));
    good = speed(named ? args[1] : "q4_0", false, true, counts);
  } else if (what == "canvas_bits") {
    good = check_canvas_bits({args.begin() + 1, args.end()});
  } else if ((what == "host" || what == "canvas") && args.size() > 2) {
    std::vector<int> counts;
    for (size_t i = 2; i < args.size(); ++i) counts.push_back(std::max(1, std::atoi(args[i].c_str())));
    good = what == "host" ? check_host(args[1], counts) : check_canvas_tokens(args[1], counts);
  } else if (what == "climb") {
    const int32_t last = args.size() > 1 ? std::atoi(args[1].c_str()) : 65;
    good = speed("q4_0", true, false, {std::clamp(last, 1, 65)});
  } else {
    for (size_t i = 1; i < args.size(); ++i) good &= speed(args[i], false, true);
  }
  return good ? 0 : 1;
}
