// Goldens made with Hugging Face transformers (tools/make_goldens.py): golden.json (prompts, ids, greedy continuations
// with the margin of every step) and golden_logits.safetensors (logits.i [tokens, vocabulary]).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "formats/safetensors/safetensors.h"
#include "kernels/backend.h"
#include "kv/pages.h"
#include "models/model.h"

namespace cohort::golden {

struct Prompt {
  std::vector<int32_t> ids;
  std::vector<float> logits;        // [ids, vocabulary]
  std::vector<int32_t> greedy_ids;  // prompt and continuation
  std::vector<float> margins;       // of each generated token
};

inline std::vector<Prompt> load_prompts(const std::filesystem::path& directory) {
  std::ifstream file(directory / "golden.json");
  const auto json = nlohmann::json::parse(file);
  auto tensors = safetensors::File::open(directory / "golden_logits.safetensors");
  if (!tensors) throw std::runtime_error(tensors.error().message);
  std::vector<Prompt> prompts(json.size());
  for (size_t i = 0; i < json.size(); ++i) {
    prompts[i].ids = json[i].at("ids").get<std::vector<int32_t>>();
    prompts[i].greedy_ids = json[i].at("greedy_ids").get<std::vector<int32_t>>();
    prompts[i].margins = json[i].at("greedy_margin").get<std::vector<float>>();
  }
  for (const auto& tensor : tensors->tensors()) {
    if (!tensor.name.starts_with("logits.")) continue;
    auto& logits = prompts.at(std::stoul(tensor.name.substr(7))).logits;
    logits.resize(tensor.bytes / sizeof(float));
    std::memcpy(logits.data(), tensor.data, tensor.bytes);
  }
  return prompts;
}

/// Logits of the rows from `start` on, as one sequence on the first pages, `chunk` rows a step; earlier rows are in the
/// cache already. [ids - start, vocabulary]
inline std::vector<float> all_logits(Backend& backend, int32_t vocabulary, const std::vector<int32_t>& ids,
                                     int32_t chunk, int32_t start = 0) {
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<int32_t> pages(static_cast<size_t>(pages_for(count)));
  std::iota(pages.begin(), pages.end(), 0);
  std::vector<float> logits(static_cast<size_t>(count - start) * static_cast<size_t>(vocabulary));
  for (int32_t first = start; first < count; first += chunk) {
    Batch batch;
    const int32_t rows = std::min(chunk, count - first);
    for (int32_t r = 0; r < rows; ++r) {
      batch.tokens.push_back(ids[static_cast<size_t>(first + r)]);
      batch.positions.push_back(first + r);
      batch.sampled_rows.push_back(r);
    }
    batch.sequences.push_back({0, rows, first, pages});
    const auto width = static_cast<size_t>(vocabulary);
    auto stats = backend.run(batch, std::span(logits).subspan(static_cast<size_t>(first - start) * width,
                                                              static_cast<size_t>(rows) * width));
    if (!stats) throw std::runtime_error(stats.error().message);
  }
  return logits;
}

/// ||a - b|| / ||b||; NaN never compares as small.
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return a.size() == b.size() ? std::sqrt(difference / norm) : INFINITY;
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (size_t i = 0; i < b.size(); ++i)
    largest = std::max(largest, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

/// Greedy continuation; stops comparing at the first step whose margin is below `error` (twice the largest difference
/// of a logit: two candidates may each move by one). Returns how many steps were compared equal; -1 at a difference
/// that the error does not excuse.
inline int equal_greedy_steps(Backend& backend, int32_t vocabulary, const Prompt& prompt, double error) {
  std::vector<int32_t> ids = prompt.ids;
  int32_t cached = 0;
  for (size_t step = 0; step < prompt.margins.size(); ++step) {
    if (static_cast<double>(prompt.margins[step]) < error) return static_cast<int>(step);
    const auto logits = all_logits(backend, vocabulary, ids, 512, cached);
    cached = static_cast<int32_t>(ids.size());
    const auto last = logits.end() - vocabulary;
    const auto token = static_cast<int32_t>(std::max_element(last, logits.end()) - last);
    if (token != prompt.greedy_ids[ids.size()]) return -1;
    ids.push_back(token);
  }
  return static_cast<int>(prompt.margins.size());
}

}  // namespace cohort::golden
