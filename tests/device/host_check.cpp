#include "host_check.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "cohort/engine.h"
#include "kernels/cuda/backend.h"
#include "kv/cache.h"
#include "measure/synth.h"
#include "models/model.h"

namespace cohort::device_check {
namespace {

constexpr int32_t kPrompt = 128, kTokens = 64;
constexpr int32_t kPositions = kPrompt + kTokens;

struct Place {
  std::string name;
  EngineOptions options;
};

template <class T>
bool print_error(const Expected<T>& value, const std::string& what) {
  if (!value) std::printf("%s: %s\n", what.c_str(), value.error().message.c_str());
  return !value;
}

SamplingParams sampling(int kind, int32_t stream) {
  SamplingParams p;
  p.seed = 5 + static_cast<uint64_t>(stream);
  switch (kind) {
    case 0:
      p.temperature = 0;
      break;
    case 1:
      break;  // the defaults: top_k 40
    case 2:
      p.top_k = 0;
      p.top_p = 1;
      break;
    default:
      p.temperature = 0.3F;  // else a model of random weights needs thousands of tokens for 0.7
      p.top_k = 0;
      p.top_p = 0.7F;
  }
  return p;
}
constexpr int kKinds = 4;

struct Run {
  std::vector<std::vector<int32_t>> tokens;  // by stream
  double prefill = 0, decode = 0;            // tokens a second
  double median_ms = 0;                      // of the steps in which all streams decode
};

Expected<Run> run(Engine& engine, int32_t streams, int kind) {
  Run out;
  const int32_t vocabulary = engine.model().program().vocabulary;
  std::vector<SequenceId> ids;
  for (int32_t s = 0; s < streams; ++s) {
    SequenceRequest request;
    for (int32_t i = 0; i < kPrompt; ++i)
      request.prompt.push_back(static_cast<int32_t>((int64_t{s} * 7919 + int64_t{i} * 104729 + 11) % vocabulary));
    request.max_tokens = kTokens;
    request.sampling = sampling(kind, s);
    auto id = engine.submit(std::move(request));
    if (!id) return tl::unexpected(id.error());
    ids.push_back(*id);
  }
  out.tokens.resize(ids.size());
  double prefill = 0, decode = 0;
  int64_t prompt_rows = 0, decoded = 0;
  std::vector<double> steps;
  while (!engine.idle()) {
    auto report = engine.step();
    if (!report) return tl::unexpected(report.error());
    if (report->prefill_rows > 0) {
      prefill += report->seconds;
      prompt_rows += report->prefill_rows;
    } else {
      decode += report->seconds;
      decoded += report->decode_rows;
      if (report->decode_rows == streams) steps.push_back(report->seconds);
    }
    for (const TokenEvent& event : report->events) {
      if (event.finish == FinishReason::failed) return tl::unexpected(event.error);
      const auto at = std::find(ids.begin(), ids.end(), event.sequence) - ids.begin();
      out.tokens[static_cast<size_t>(at)].push_back(event.sample.token);
    }
  }
  out.prefill = static_cast<double>(prompt_rows) / prefill;
  out.decode = static_cast<double>(decoded) / decode;
  if (!steps.empty()) {
    std::sort(steps.begin(), steps.end());
    out.median_ms = steps[steps.size() / 2] * 1e3;
  }
  return out;
}

/// Options for the device with that share of the experts' bytes on it, and just the room that this takes.
Expected<EngineOptions> with_share(const EngineOptions& device, double share) {
  auto model = Model::load(device.model, device.context);
  if (!model) return tl::unexpected(model.error());
  const Program& program = (*model)->program();
  const auto needs = cuda_memory_needs(program, CudaOptions().max_rows);
  if (!needs) return tl::unexpected(needs.error());
  double experts = 0;
  for (const ExpertLayer& layer : needs->layers) experts += static_cast<double>(layer.bytes) * layer.experts;
  const auto pages = static_cast<size_t>((device.kv_positions + kPagePositions - 1) / kPagePositions);
  EngineOptions out = device;
  out.device_memory =
      static_cast<int64_t>(needs->fixed + pages * KvCache::page_bytes(program.cache_layers, TensorType::f16) +
                           static_cast<size_t>(share * experts));
  return out;
}

}  // namespace

bool check_host(const std::string& given, const std::vector<int>& counts) {
  std::string model = given;
  const auto names = synth_config_names();
  if (std::find(names.begin(), names.end(), given) != names.end()) {
    SynthOptions synth;
    synth.config = given;
    synth.type = "q4_0";
    model = synth.output = given + ".gguf";
    synth.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    if (print_error(synthesise(synth), given)) return false;
  }
  EngineOptions base;
  base.model = model;
  base.context = kPositions;
  base.max_streams = *std::max_element(counts.begin(), counts.end());
  base.kv_positions = int64_t{base.max_streams} * ((kPositions + kPagePositions - 1) / kPagePositions) * kPagePositions;
  base.prefix_cache = false;
  base.device = "cuda";
  std::vector<Place> places = {{"all on the device", base}};
  for (const auto& [name, share] : {std::pair{"half", 0.5}, {"none", 0.0}}) {
    auto options = with_share(base, share);
    if (print_error(options, name)) return false;
    places.push_back({name, *options});
  }
  if (const char* matrix = std::getenv("DEVICE_CHECK_COUNTS"); matrix != nullptr) {
    Place by_counts = {"half, by counts", places[1].options};
    by_counts.options.expert_counts = matrix;
    places.push_back(by_counts);
  }
  places.push_back({"cpu", base});
  places.back().options.device = "cpu";
  std::printf("\n%s: streams of %d + %d tokens\n", given.c_str(), kPrompt, kTokens);
  bool good = true;
  std::vector<std::vector<Run>> expected(kKinds);  // by kind of sampling and count
  for (const Place& place : places) {
    auto engine = Engine::create(place.options);
    if (print_error(engine, place.name)) return false;
    std::printf("%-18s %s\n", place.name.c_str(), (*engine)->description().c_str());
    for (int kind = 0; kind < kKinds; ++kind) {
      if (auto warm = run(**engine, counts[0], kind); print_error(warm, place.name)) return false;
      for (size_t c = 0; c < (kind == 0 ? counts.size() : 1); ++c) {
        auto got = run(**engine, counts[c], kind);
        if (print_error(got, place.name)) return false;
        const bool first = expected[static_cast<size_t>(kind)].size() <= c;
        if (first) expected[static_cast<size_t>(kind)].push_back(*got);
        const bool same = expected[static_cast<size_t>(kind)][c].tokens == got->tokens;
        good &= same;
        constexpr const char* kNames[] = {"greedy", "top_k 40", "all", "top_p 0.7"};
        std::printf("  %-10s %3d streams: prefill %8.0f tok/s, decode %8.0f tok/s, step %8.3f ms  %s\n", kNames[kind],
                    counts[c], got->prefill, got->decode, got->median_ms,
                    first  ? ""
                    : same ? "same tokens"
                           : "OTHER TOKENS");
        std::fflush(stdout);
      }
    }
  }
  return good;
}

}  // namespace cohort::device_check
