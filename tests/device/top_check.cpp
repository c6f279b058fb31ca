#include "top_check.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "engine/sampler.h"
#include "kernels/cuda/draw.h"

namespace cohort::device_check {
namespace {

using cuda::kTopLogits;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Row `kind` of a vocabulary.
std::vector<float> logits_of(int kind, int32_t vocabulary) {
  std::vector<float> out(static_cast<size_t>(vocabulary));
  for (size_t i = 0; i < out.size(); ++i) {
    const float u = uniform(7, static_cast<uint32_t>(i), static_cast<uint32_t>(kind), 0);
    switch (kind) {
      case 0:
        out[i] = 8 * u - 4;
        break;
      case 1:
        out[i] = 1.5F;  // ties everywhere
        break;
      case 2:
        out[i] = std::floor(4 * u);  // few values
        break;
      case 3:
        out[i] = i % 1024 < 3 ? 100 + u : u;  // the large ones belong to three threads
        break;
      case 4:
        out[i] = i % 2 == 0 ? 0.0F : -0.0F;
        break;
      case 5:
        out[i] = -kInfinity;
        break;
      default:
        out[i] = i % 97 == 5 ? std::numeric_limits<float>::quiet_NaN() : u < 0.01F ? kInfinity : -u;
    }
  }
  return out;
}
constexpr int kKinds = 7;

std::vector<int32_t> sorted_ids(const std::vector<float>& logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && !std::isnan(y);
    return x > y;
  });
  ids.resize(kTopLogits, -1);
  return ids;
}

/// Draws from these rows on the device, with several temperatures and min_p, against their definition.
bool check_draws(const std::vector<float>& all, const float* logits, int32_t* header, int32_t vocabulary) {
  if (!cuda::draw_fits(vocabulary)) return true;
  const auto width = static_cast<size_t>(vocabulary);
  DrawRule* rules = nullptr;
  Draw* draws = nullptr;
  bool good =
      cudaHostAlloc(reinterpret_cast<void**>(&rules), kKinds * sizeof(DrawRule), cudaHostAllocMapped) == cudaSuccess &&
      cudaHostAlloc(reinterpret_cast<void**>(&draws), kKinds * sizeof(Draw), cudaHostAllocMapped) == cudaSuccess;
  for (uint32_t round = 0; good && round < 12; ++round) {
    for (uint32_t kind = 0; kind < kKinds; ++kind) {
      // The last round asks for the largest number there is, so that sums may round above it.
      const float u = round == 11 ? 1.0F - 0x1p-24F : uniform(3, round, kind, 0);
      rules[kind] = {(round + kind) % 6 == 5 ? 0.0F : 0.25F + 0.25F * static_cast<float>(round % 4),
                     round % 3 == 2 ? 0.1F : 0.0F, u};
      draws[kind] = {};
    }
    cuda::DrawArgs args;
    args.step.header = header;
    args.step.max_rows = kKinds;
    args.logits = logits;
    args.vocabulary = vocabulary;
    args.rules = rules;
    args.draws = draws;
    cuda::launch_draw(args, 4, nullptr);  // fewer blocks than rows
    good = cudaDeviceSynchronize() == cudaSuccess;
    for (size_t kind = 0; good && kind < kKinds; ++kind) {
      const Draw expected = draw_from(std::span(all).subspan(kind * width, width), rules[kind]);
      good = draws[kind].token == expected.token && std::memcmp(&draws[kind].total, &expected.total, 4) == 0;
      if (!good) {
        std::printf("draws: vocabulary %d, kind %zu, round %u: token %d of %.9g instead of %d of %.9g\n", vocabulary,
                    kind, round, draws[kind].token, static_cast<double>(draws[kind].total), expected.token,
                    static_cast<double>(expected.total));
      }
    }
  }
  cudaFreeHost(rules);
  cudaFreeHost(draws);
  return good;
}

bool check_vocabulary(int32_t vocabulary) {
  const auto width = static_cast<size_t>(vocabulary);
  std::vector<float> all;
  for (int kind = 0; kind < kKinds; ++kind) {
    const std::vector<float> row = logits_of(kind, vocabulary);
    all.insert(all.end(), row.begin(), row.end());
  }
  float *logits = nullptr, *values = nullptr;
  int32_t *header = nullptr, *ids = nullptr;
  constexpr size_t kResults = size_t{kKinds} * kTopLogits * 4;
  int32_t words[cuda::kHeaderWords] = {};
  words[cuda::kSampled] = kKinds;
  bool good = cudaMalloc(reinterpret_cast<void**>(&logits), all.size() * 4) == cudaSuccess &&
              cudaMalloc(reinterpret_cast<void**>(&values), kResults) == cudaSuccess &&
              cudaMalloc(reinterpret_cast<void**>(&header), sizeof(words)) == cudaSuccess &&
              cudaMalloc(reinterpret_cast<void**>(&ids), kResults) == cudaSuccess;
  good = good && cudaMemcpy(logits, all.data(), all.size() * 4, cudaMemcpyHostToDevice) == cudaSuccess &&
         cudaMemcpy(header, words, sizeof(words), cudaMemcpyHostToDevice) == cudaSuccess;
  std::vector<int32_t> got_ids(size_t{kKinds} * kTopLogits);
  std::vector<float> got_values(got_ids.size());
  if (good) {
    cuda::TopArgs args;
    args.step.header = header;
    args.step.max_rows = kKinds;
    args.logits = logits;
    args.vocabulary = vocabulary;
    args.ids = ids;
    args.values = values;
    cuda::launch_top(args, 4, nullptr);  // fewer blocks than rows
    good = cudaDeviceSynchronize() == cudaSuccess &&
           cudaMemcpy(got_ids.data(), ids, kResults, cudaMemcpyDeviceToHost) == cudaSuccess &&
           cudaMemcpy(got_values.data(), values, kResults, cudaMemcpyDeviceToHost) == cudaSuccess;
  }
  for (int kind = 0; good && kind < kKinds; ++kind) {
    const auto first = static_cast<size_t>(kind) * kTopLogits;
    const std::vector<int32_t> expected = sorted_ids(logits_of(kind, vocabulary));
    for (size_t k = 0; k < kTopLogits; ++k) {
      const int32_t id = got_ids[first + k];
      good &= id == expected[k];
      const float value = id < 0 ? 0.0F : all[static_cast<size_t>(kind) * width + static_cast<size_t>(id)];
      good &= std::memcmp(&value, &got_values[first + k], 4) == 0;
    }
    if (!good) std::printf("largest logits: vocabulary %d, rows of kind %d differ\n", vocabulary, kind);
  }
  good = good && check_draws(all, logits, header, vocabulary);
  cudaFree(logits);
  cudaFree(values);
  cudaFree(header);
  cudaFree(ids);
  return good;
}

}  // namespace

bool check_top() {
  bool good = true;
  for (const int32_t vocabulary : {1, 63, 64, 65, 1000, 1024, 1025, 32000, 151936, 262144})
    good &= check_vocabulary(vocabulary);
  std::printf("the %d largest logits and draws of %d kinds of rows, 10 vocabularies: %s\n", kTopLogits, kKinds,
              good ? "as defined" : "WRONG");
  return good;
}

}  // namespace cohort::device_check
