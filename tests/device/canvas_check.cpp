#include "canvas_check.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/rng.h"
#include "cohort/engine.h"
#include "engine/canvas.h"
#include "kernels/cpu/random_model.h"
#include "kernels/cuda/backend.h"
#include "kernels/reference/backend.h"
#include "kv/cache.h"
#include "measure/profile.h"
#include "measure/synth.h"
#include "models/model.h"
#include "parts.h"

namespace cohort::device_check {
namespace {

template <class T>
bool print_error(const Expected<T>& value, const std::string& what) {
  if (!value) std::printf("%s: %s\n", what.c_str(), value.error().message.c_str());
  return !value;
}

// ---- Bits.

struct Case {
  const char* name;
  TensorType weights, table, cache;
  int32_t canvas, hidden, heads, kv_heads, head_dim, sliding_kv_heads, sliding_dim, window, inner, experts, top_k,
      vocabulary;
  std::vector<int32_t> past;  // positions of each stream before; the last stream is no canvas's
};

ModelConfig config_of(const Case& c) {
  ModelConfig m;
  m.architecture = "diffusion-gemma";
  m.name = "random";
  m.layers = 2;
  m.hidden = c.hidden;
  m.heads = c.heads;
  m.kv_heads = c.kv_heads;
  m.head_dim = m.rotary_dims = c.head_dim;
  m.sliding = {{true, false}, c.window, c.sliding_kv_heads, c.sliding_dim, c.sliding_dim, 1e4};
  m.vocabulary = c.vocabulary;
  m.context = 1536;
  m.inner = m.expert_inner = c.inner;
  m.experts = c.experts;
  m.top_k = c.top_k;
  m.logit_softcap = 30;
  m.diffusion.canvas_length = c.canvas;
  return m;
}

struct Stream {
  int32_t position = 0, rows = 0;
  bool canvas = false;
  std::vector<Mixture> mixtures = {};
  std::vector<int32_t> pages = {};
};
Batch batch_of(const std::vector<const Stream*>& streams, int32_t vocabulary) {
  Batch batch;
  for (const Stream* s : streams) {
    batch.sequences.push_back({batch.rows(), s->rows, s->position, s->pages, s->canvas, s->mixtures});
    for (int32_t r = 0; r < s->rows; ++r) {
      if (s->canvas) batch.sampled_rows.push_back(batch.rows());
      batch.tokens.push_back((s->position + r) * 37 % vocabulary);
      batch.positions.push_back(s->position + r);
    }
  }
  return batch;
}

int64_t differing(const std::vector<float>& a, const std::vector<float>& b, size_t& first) {
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], 4) == 0 || (a[i] != a[i] && b[i] != b[i])) continue;
    if (count++ == 0) first = i;
  }
  return count;
}

/// The random model of a case, on the reference and on the device.
class CanvasCheck {
 public:
  explicit CanvasCheck(const Case& c) : case_(c), config_(config_of(c)) {}

  bool run() {
    auto model = testing::random_model(config_, [&](const std::string& name) {
      return name.find("ffn_gate_inp") != std::string::npos ? TensorType::f32
             : name == "token_embd"                         ? case_.table
                                                            : case_.weights;
    });
    if (print_error(model, case_.name)) return false;
    model_ = std::move(*model);
    int32_t next = 0;
    for (size_t i = 0; i < case_.past.size(); ++i) {
      const bool canvas = i + 1 < case_.past.size();
      Stream now{case_.past[i], canvas ? case_.canvas : 9, canvas};
      for (int32_t p = 0; p <= (now.position + now.rows) / kPagePositions; ++p) now.pages.push_back(next++);
      now_.push_back(now);
      past_.push_back({0, case_.past[i], false, {}, now.pages});
    }
    pages_ = next;
    if (now_.size() > 2) now_[1].mixtures = random_mixtures();
    bool good = true;
    for (const int32_t streams : {4, 1}) good &= logits(streams);
    good &= readings();
    if (!good) find_first();
    return good;
  }

 private:
  std::vector<Mixture> random_mixtures() const {
    std::vector<Mixture> out(static_cast<size_t>(case_.canvas));
    for (uint32_t row = 0; row < out.size(); ++row) {
      for (int32_t token = 0; token < case_.vocabulary; ++token) {
        const float u = uniform(3, row, static_cast<uint32_t>(token), 0);
        const bool there = row == 3 || (row == 5 && token == 77) || (row > 6 && u < 0.002F * static_cast<float>(row));
        if (!there) continue;
        out[row].tokens.push_back(token);
        out[row].weights.push_back(u * u + 1e-6F);
      }
    }
    return out;
  }
  std::vector<const Stream*> all(const std::vector<Stream>& streams) const {
    std::vector<const Stream*> out;
    for (const Stream& s : streams) out.push_back(&s);
    return out;
  }
  Batch together() const { return batch_of(all(now_), case_.vocabulary); }

  std::unique_ptr<Backend> reference(const Program& program) const {
    auto backend = make_reference_backend(program, {threads(), ActivationMode::canonical});
    if (print_error(backend->allocate_cache(case_.cache, pages_), case_.name)) return nullptr;
    return backend;
  }
  std::unique_ptr<CudaBackend> device(const Program& program, int32_t streams, int32_t rows = 256) const {
    CudaOptions options;
    options.threads = threads();
    options.max_rows = rows;
    options.canvas = case_.canvas;
    options.streams = streams;
    auto made = make_cuda_backend(program, options);
    if (print_error(made, case_.name)) return nullptr;
    if (print_error((*made)->allocate_cache(case_.cache, pages_), case_.name)) return nullptr;
    return std::move(*made);
  }
  static std::vector<float> run(Backend& backend, const Batch& batch, int32_t width) {
    std::vector<float> out(batch.sampled_rows.size() * static_cast<size_t>(width), -1.0F);
    if (auto stats = backend.run(batch, out); !stats) std::printf("error: %s\n", stats.error().message.c_str());
    return out;
  }
  bool same(const std::vector<float>& expected, const std::vector<float>& got, const char* what) const {
    size_t first = 0;
    const int64_t count = differing(expected, got, first);
    if (count == 0) return true;
    const auto width = static_cast<size_t>(case_.vocabulary);
    std::printf("  %s, %s: %lld of %zu values differ, first in row %zu, column %zu: %.9g instead of %.9g\n", case_.name,
                what, static_cast<long long>(count), expected.size(), first / width, first % width,
                static_cast<double>(got[first]), static_cast<double>(expected[first]));
    return false;
  }

  /// All logits of a step, alone, in company and cut into submissions.
  bool logits(int32_t streams) const {
    auto oracle = reference(model_->program);
    auto cuda = device(model_->program, streams);
    if (oracle == nullptr || cuda == nullptr) return false;
    const int32_t v = case_.vocabulary;
    const Batch before = batch_of(all(past_), v), step = together();
    run(*oracle, before, v);
    run(*cuda, before, v);
    const std::vector<float> expected = run(*oracle, step, v);
    bool good = same(expected, run(*cuda, step, v), streams > 1 ? "together" : "together, places for one");
    std::printf("  %-26s %9zu logits, %d places: kernels %lld, submissions %lld\n", case_.name, expected.size(),
                streams, static_cast<long long>(cuda->kernels()), static_cast<long long>(cuda->submissions()));
    const size_t each = static_cast<size_t>(case_.canvas) * static_cast<size_t>(v);
    for (size_t i = 0; i + 1 < now_.size(); ++i) {
      const auto first = expected.begin() + static_cast<std::ptrdiff_t>(i * each);
      const std::vector<float> mine(first, first + static_cast<std::ptrdiff_t>(each));
      good &= same(mine, run(*cuda, batch_of({&now_[i]}, v), v), "alone");
      good &= same(mine, run(*cuda, batch_of({&now_.back(), &now_[i]}, v), v), "behind a prompt");
    }
    return good;
  }

  /// Steps in which the device reads the canvases, beside a host that reads the reference's logits. Temperatures at
  /// which rows are sure of little, of one token, and of some.
  bool readings() const {
    auto oracle = reference(model_->program);
    auto cuda = device(model_->program, 4);
    if (oracle == nullptr || cuda == nullptr) return false;
    const int32_t v = case_.vocabulary;
    const Batch before = batch_of(all(past_), v);
    run(*oracle, before, v);
    run(*cuda, before, v);
    std::vector<Stream> streams = now_;
    for (Stream& s : streams) s.mixtures.clear();
    std::vector<CanvasPlace> places;
    for (size_t i = 0; i < streams.size(); ++i)
      places.push_back({streams[i].canvas ? static_cast<int32_t>(3 - i) : -1, false});
    int64_t different = 0, rows = 0, tokens = 0;
    for (uint32_t n = 0; n < 4; ++n) {
      const float temperature = std::vector<float>{0.8F, 0.02F, 0.2F, 0.8F}[n];
      const Batch step = batch_of(all(streams), v);
      std::vector<CanvasRule> rules;
      for (size_t r = 0; r < step.sampled_rows.size(); ++r)
        rules.push_back({temperature, r % 7 == 6 ? 1.0F - 0x1p-24F : uniform(9, static_cast<uint32_t>(r), n, 0)});
      std::vector<CanvasReading> got(rules.size());
      if (print_error(cuda->run_canvases(step, places, rules, got), case_.name)) return false;
      std::vector<float> expected = run(*oracle, step, v);
      for (size_t r = 0; r < rules.size(); ++r) {
        auto row = read_canvas_row(std::span(expected).subspan(r * static_cast<size_t>(v), static_cast<size_t>(v)),
                                   temperature, rules[r].u);
        const auto mine = canvas_row_of(got[r], temperature);
        if (print_error(row, "reference") || print_error(mine, "device")) return false;
        ++rows;
        tokens += static_cast<int64_t>(row->mixture.tokens.size());
        if (row->best != mine->best || row->drawn != mine->drawn || row->entropy != mine->entropy) {
          if (different++ < 3) {
            std::printf("  %s, reading %u, row %zu: best %d, drawn %d, entropy %.9g instead of %d, %d, %.9g\n",
                        case_.name, n, r, mine->best, mine->drawn, static_cast<double>(mine->entropy), row->best,
                        row->drawn, static_cast<double>(row->entropy));
          }
        }
        Stream& s = streams[r / static_cast<size_t>(case_.canvas)];
        s.mixtures.resize(static_cast<size_t>(case_.canvas));
        s.mixtures[r % static_cast<size_t>(case_.canvas)] = std::move(row->mixture);
      }
      for (size_t i = 0; i < streams.size(); ++i) places[i].kept = streams[i].canvas;
    }
    std::printf("  %-26s %9lld rows read, of %lld tokens each: %lld differ\n", case_.name, static_cast<long long>(rows),
                static_cast<long long>(tokens / std::max<int64_t>(rows, 1)), static_cast<long long>(different));
    return different == 0;
  }

  /// The first operations whose values differ: programs that end behind them.
  void find_first() const {
    const Program& whole = model_->program;
    int found = 0;
    for (size_t k = 0; k < whole.ops.size() && found < 3; ++k) {
      const ValueInfo& info = whole.values[static_cast<size_t>(whole.ops[k].output)];
      if (info.kind != ValueKind::floats || info.extent != Extent::rows) continue;
      Program part = whole;
      part.ops.resize(k + 1);
      part.values.push_back({"probe", info.width, Extent::sampled, ValueKind::floats});
      part.logits = static_cast<ValueId>(part.values.size() - 1);
      part.ops.push_back({"probe", -1, {whole.ops[k].output}, part.logits, op::Gather{}});
      part.vocabulary = info.width;
      size_t layers = 0;
      for (const Op& op : part.ops) layers += std::holds_alternative<op::Attend>(op.action) ? 1 : 0;
      part.cache_layers.resize(layers);
      auto oracle = reference(part);
      auto cuda = device(part, 4);
      if (oracle == nullptr || cuda == nullptr) return;
      const Batch before = batch_of(all(past_), case_.vocabulary), step = together();
      run(*oracle, before, info.width);
      run(*cuda, before, info.width);
      size_t first = 0;
      const std::vector<float> a = run(*oracle, step, info.width), b = run(*cuda, step, info.width);
      const int64_t count = differing(a, b, first);
      if (count == 0) continue;
      ++found;
      const auto width = static_cast<size_t>(info.width);
      std::printf("    blk.%d %s: %lld of %zu differ, first in row %zu, column %zu: %.9g instead of %.9g\n",
                  whole.ops[k].layer, whole.ops[k].name.c_str(), static_cast<long long>(count), a.size(), first / width,
                  first % width, static_cast<double>(b[first]), static_cast<double>(a[first]));
    }
    if (found == 0) std::printf("    no single operation differs\n");
    std::fflush(stdout);
  }

  Case case_;
  ModelConfig config_;
  std::unique_ptr<testing::RandomModel> model_;
  std::vector<Stream> past_, now_;
  int32_t pages_ = 0;
};

// ---- Tokens and speed.

constexpr int32_t kPrompt = 128, kSteps = 4;

struct Run {
  std::vector<std::vector<int32_t>> tokens;  // by stream
  std::vector<double> steps;                 // seconds of those in which every stream denoises and none is read
  double median_ms() {
    if (steps.empty()) return 0;
    std::ranges::sort(steps);
    return steps[steps.size() / 2] * 1e3;
  }
};

Expected<Run> run_engine(const EngineOptions& options, int32_t streams, std::string* description = nullptr) {
  auto engine = Engine::create(options);
  if (!engine) return tl::unexpected(engine.error());
  if (description != nullptr) *description = (*engine)->description();
  Run out;
  std::vector<SequenceId> ids;
  const int32_t vocabulary = (*engine)->model().program().vocabulary;
  for (int32_t s = 0; s < streams; ++s) {
    SequenceRequest request;
    for (int32_t i = 0; i < kPrompt + s * 5; ++i)
      request.prompt.push_back(static_cast<int32_t>((int64_t{s} * 7919 + int64_t{i} * 104729 + 11) % vocabulary));
    request.max_tokens = (*engine)->diffusion().canvas_length + 20;  // a second canvas
    request.sampling.seed = 5 + static_cast<uint64_t>(s);
    auto id = (*engine)->submit(std::move(request));
    if (!id) return tl::unexpected(id.error());
    ids.push_back(*id);
  }
  out.tokens.resize(ids.size());
  while (!(*engine)->idle()) {
    const auto report = (*engine)->step();
    if (!report) return tl::unexpected(report.error());
    if (report->prefill_rows == 0 && report->decode_rows == streams * (*engine)->diffusion().canvas_length)
      out.steps.push_back(report->seconds);
    for (const TokenEvent& event : report->events) {
      if (event.finish == FinishReason::failed) return tl::unexpected(event.error);
      const auto at = std::ranges::find(ids, event.sequence) - ids.begin();
      out.tokens[static_cast<size_t>(at)].push_back(event.sample.token);
    }
  }
  return out;
}

}  // namespace

bool check_canvas_bits(const std::vector<std::string>& parts) {
  using T = TensorType;
  //                                                      C  hid   h kv dim skv sdim win inner E k vocab  past
  const std::vector<Case> cases = {
      {"q4_0, small", T::q4_0, T::q8_0, T::f16, 20, 320, 4, 1, 64, 2, 32, 16, 256, 4, 2, 150, {20, 37, 5}},
      {"bf16, small", T::bf16, T::bf16, T::f16, 20, 320, 4, 1, 64, 2, 32, 16, 256, 4, 2, 150, {20, 37, 5}},
      {"a row a canvas", T::q4_0, T::q8_0, T::f16, 1, 256, 4, 1, 64, 2, 32, 16, 256, 4, 2, 256, {20, 37, 5}},
      {"q4_k, q8_0 cache", T::q4_k, T::q6_k, T::q8_0, 70, 256, 4, 1, 64, 2, 128, 100, 256, 4, 2, 1000, {300, 40, 530}},
      {"heads of 128 in fours",
       T::q4_0,
       T::q4_0,
       T::bf16,
       40,
       256,
       4,
       1,
       128,
       1,
       128,
       100,
       256,
       8,
       4,
       512,
       {250, 90, 7}},
      {"mini's layers", T::q4_0, T::q4_0, T::f16, 256, 1024, 4, 1, 512, 2, 256, 300, 448, 16, 8, 4000, {128, 600, 3}},
      {"f32 cache", T::q8_0, T::q8_0, T::f32, 30, 512, 4, 1, 256, 2, 128, 64, 256, 8, 4, 2048, {500, 10, 40}},
  };
  bool good = true;
  int32_t number = 0;
  for (const Case& c : cases) {
    if (asked_for(parts, number++, c.name)) good &= CanvasCheck(c).run();
  }
  std::printf("canvases: %s\n", good ? "all equal" : "DIFFERENCES");
  std::fflush(stdout);
  return good;
}

bool check_canvas_tokens(const std::string& given, const std::vector<int>& counts) {
  std::string model = given;
  const auto names = synth_config_names();
  if (std::ranges::find(names, given) != names.end()) {
    SynthOptions synth;
    synth.config = given;
    synth.type = "q4_0";
    model = synth.output = given + ".gguf";
    synth.threads = threads();
    if (!std::filesystem::exists(model) && print_error(synthesise(synth), given)) return false;
  }
  EngineOptions base;
  base.model = model;
  base.context = 1024;
  base.max_streams = *std::ranges::max_element(counts);
  base.device = "cuda";
  base.diffusion.max_steps = kSteps;
  struct Way {
    const char* name;
    EngineOptions options;
  };
  std::vector<Way> ways = {
      {"device", base}, {"device, one by one", base}, {"device, prompts in pieces", base}, {"cpu", base}};
  ways[1].options.batching = false;
  ways[2].options.prefill_rows = 50;
  ways[3].options.device = "cpu";
  bool good = true;
  std::vector<std::vector<int32_t>> expected;  // by stream, from the first way and count
  for (Way& way : ways) {
    for (const int count : counts) {
      std::string description;
      auto run = run_engine(way.options, count, &description);
      if (print_error(run, way.name)) {
        good = false;
        break;
      }
      bool same = true;
      for (size_t s = 0; s < run->tokens.size(); ++s) {
        if (s == expected.size()) expected.push_back(run->tokens[s]);
        same &= expected[s] == run->tokens[s];
      }
      good &= same;
      std::printf("%-26s %d streams: step %9.3f ms, %zu tokens  %s  (%s)\n", way.name, count, run->median_ms(),
                  run->tokens[0].size(), same ? "same tokens" : "OTHER TOKENS", description.c_str());
      std::fflush(stdout);
    }
  }
  ProfileOptions profile;
  profile.engine = base;
  profile.engine.kv_positions = 0;
  profile.steps = 4;
  profile.streams = {1, 4};
  const auto report = profile_steps(profile, {});
  if (print_error(report, "profile")) return false;
  for (const ProfilePoint& point : report->points) {
    std::printf("%s%d streams, %.0f rows, %.3f ms a step, %.1f MB:", point.prefill ? "prompt of " : "", point.streams,
                point.rows, point.seconds * 1e3, point.bytes / 1e6);
    for (const ProfileEntry& e : point.operations)
      std::printf(" %s %.0f us x%lld,", e.name.c_str(), e.seconds * 1e6, static_cast<long long>(e.jobs));
    std::printf("\n");
  }
  return good;
}

}  // namespace cohort::device_check
