#include "measure/parity.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/memory.h"
#include "base/result.h"
#include "base/rng.h"
#include "engine/backend_choice.h"
#include "kernels/cpu/isa.h"
#include "kv/cache.h"
#include "kv/pages.h"
#include "measure/fed_streams.h"
#include "models/model.h"

namespace cohort {
namespace {

/// How positions are cut into steps, and who runs together.
struct Schedule {
  std::string name;
  bool together;                // all streams in every step; else one stream after the other
  std::vector<int32_t> chunks;  // lengths of consecutive pieces, repeated until the end
  bool stagger = false;         // stream i starts i steps late
  bool shared_prefix = false;   // whole pages of the first half come from another sequence with the same tokens
};

class ParityCheck {
 public:
  ParityCheck(const Program& program, int32_t streams, int32_t tokens)
      : program_(program), streams_(streams), tokens_(tokens), pages_each_(pages_for(tokens)) {}

  /// Every stream has pages of its own, and there are as many again for sequences that share a prefix.
  int32_t pages() const { return 2 * streams_ * pages_each_; }

  /// Runs the schedule, first `tokens` positions of every stream. The first run is what later ones are compared with.
  Expected<ParityVariant> run(Backend& backend, const Schedule& schedule, std::string name, int32_t tokens) {
    ParityVariant variant;
    variant.name = std::move(name);
    const bool keep = expected_.empty();
    if (keep) expected_.resize(static_cast<size_t>(streams_) * static_cast<size_t>(tokens_) * vocabulary());
    const int32_t shared = schedule.shared_prefix ? tokens / 2 / kPagePositions * kPagePositions : 0;
    std::vector<Stream> all;
    for (int32_t s = 0; s < streams_; ++s) {
      Stream stream{s, 0, 0, schedule.stagger ? s : 0, {}};
      for (int32_t p = 0; p < pages_each_; ++p) stream.pages.push_back(s * pages_each_ + p);
      all.push_back(std::move(stream));
    }
    const auto groups = [&](const auto& step) -> Expected<void> {
      if (schedule.together) return step(std::span(all));
      for (Stream& stream : all) COHORT_TRY(step(std::span(&stream, 1)));
      return {};
    };
    if (shared > 0) {
      // Another sequence fills the pages of the prefix; then this one runs on them and pages of its own.
      COHORT_TRY(
          groups([&](std::span<Stream> group) { return run_group(backend, schedule, group, shared, nullptr, keep); }));
      for (Stream& stream : all) {
        for (int32_t p = shared / kPagePositions; p < pages_each_; ++p)
          stream.pages[static_cast<size_t>(p)] = (streams_ + stream.number) * pages_each_ + p;
      }
    }
    COHORT_TRY(
        groups([&](std::span<Stream> group) { return run_group(backend, schedule, group, tokens, &variant, keep); }));
    return variant;
  }

 private:
  struct Stream {
    int32_t number, position, piece, late;
    std::vector<int32_t> pages;
  };
  size_t vocabulary() const { return static_cast<size_t>(program_.vocabulary); }

  Expected<void> run_group(Backend& backend, const Schedule& schedule, std::span<Stream> group, int32_t end,
                           ParityVariant* variant, bool keep) {
    for (;;) {
      Batch batch;
      std::vector<std::pair<int32_t, int32_t>> rows;  // stream and position of each row
      bool waiting = false;
      for (Stream& stream : group) {
        if (stream.late > 0) {
          --stream.late;
          waiting = true;
          continue;
        }
        const int32_t wanted = schedule.chunks[static_cast<size_t>(stream.piece) % schedule.chunks.size()];
        const int32_t count = std::min(wanted, end - stream.position);
        if (count <= 0) continue;
        ++stream.piece;
        batch.sequences.push_back({batch.rows(), count, stream.position, stream.pages});
        for (int32_t i = 0; i < count; ++i, ++stream.position) {
          const float u = uniform(2, static_cast<uint32_t>(stream.position), 0, static_cast<uint32_t>(stream.number));
          batch.sampled_rows.push_back(batch.rows());
          batch.tokens.push_back(static_cast<int32_t>(u * static_cast<float>(program_.vocabulary)));
          batch.positions.push_back(stream.position);
          rows.emplace_back(stream.number, stream.position);
        }
      }
      if (rows.empty()) {
        if (waiting) continue;
        return {};
      }
      logits_.resize(rows.size() * vocabulary());
      COHORT_TRY(backend.run(batch, logits_));
      if (variant == nullptr) continue;
      for (size_t r = 0; r < rows.size(); ++r) compare(rows[r].first, rows[r].second, r, *variant, keep);
    }
  }

  void compare(int32_t stream, int32_t position, size_t row, ParityVariant& variant, bool keep) {
    float* expected =
        expected_.data() +
        (static_cast<size_t>(stream) * static_cast<size_t>(tokens_) + static_cast<size_t>(position)) * vocabulary();
    const float* got = logits_.data() + row * vocabulary();
    if (keep) std::copy_n(got, vocabulary(), expected);
    ++variant.rows;
    for (size_t i = 0; i < vocabulary(); ++i) {
      if (std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
      ++variant.differing;
      if (variant.first.empty()) {
        variant.first =
            fmt::format("stream {}, position {}, token {}: {} ({:08x}) instead of {} ({:08x})", stream, position, i,
                        got[i], std::bit_cast<uint32_t>(got[i]), expected[i], std::bit_cast<uint32_t>(expected[i]));
      }
      return;
    }
  }

  const Program& program_;
  int32_t streams_, tokens_, pages_each_;
  std::vector<float> logits_, expected_;  // expected_: [stream][position][vocabulary]
};

const Schedule kAlone = {"alone, row by row", false, {1}};

std::vector<Schedule> schedules() {
  return {{"in company, row by row", true, {1}},     {"in company, joining one after the other", true, {1}, true},
          {"alone, in one chunk", false, {1 << 20}}, {"in company, in one chunk", true, {1 << 20}},
          {"in company, chunks of 7", true, {7}},    {"in company, chunks of 1, 16, 3, 33", true, {1, 16, 3, 33}, true},
          {"alone, windows of 5", false, {5}},       {"in company, on a shared prefix", true, {19}, false, true}};
}

}  // namespace

bool ParityReport::equal() const {
  return std::ranges::all_of(variants, [](const ParityVariant& v) { return v.differing == 0; });
}

Expected<ParityReport> check_parity(const ParityOptions& options,
                                    const std::function<void(const std::string&)>& progress) {
  const auto in_range = [](std::string_view what, int64_t value, int64_t low, int64_t high) -> Expected<void> {
    if (value >= low && value <= high) return {};
    return fail(ErrorCode::invalid_argument, "{} is {}; expected {} to {}", what, value, low, high);
  };
  COHORT_TRY(in_range("the number of streams (-np)", options.streams, 1, 4096));
  COHORT_TRY(in_range("the number of tokens (--tokens-each)", options.tokens, 2, 1 << 20));
  COHORT_TRY(
      in_range("the number of tokens for the reference (--reference-tokens)", options.reference_tokens, 1, 1 << 20));
  EngineOptions engine = options.engine;
  COHORT_TRY(check_measured_options(engine));
  engine.max_streams = 2 * options.streams;
  engine.kv_positions = int64_t{2} * options.streams * pages_for(options.tokens) * kPagePositions;
  COHORT_ASSIGN(auto model, Model::load(engine.model, options.tokens));
  const Program& program = model->program();
  COHORT_ASSIGN(const TensorType kv_type, parse_kv_type(engine.kv_type));
  COHORT_ASSIGN(const int32_t pages, choose_pages(engine, *model, KvCache::page_bytes(program.cache_layers, kv_type),
                                                  {available_memory(), model->weight_bytes()}));
  ParityCheck check(program, options.streams, options.tokens);
  ParityReport report;
  report.model = model->config().name;
  report.type = main_type(program);
  report.streams = options.streams;
  report.tokens = options.tokens;
  report.canvas = model->config().diffusion.canvas_length;
  const auto add = [&](Backend& backend, const Schedule& schedule, const std::string& on,
                       int32_t tokens) -> Expected<void> {
    const std::string name = on.empty() ? schedule.name : fmt::format("{}, {}", on, schedule.name);
    if (progress) progress(name);
    COHORT_ASSIGN(ParityVariant variant, check.run(backend, schedule, name, tokens));
    report.variants.push_back(std::move(variant));
    return {};
  };
  const auto make = [&](const EngineOptions& o) -> Expected<std::unique_ptr<Backend>> {
    const int32_t most = std::max(pages, check.pages());
    const size_t bytes = KvCache::page_bytes(program.cache_layers, kv_type) * static_cast<size_t>(most);
    COHORT_ASSIGN(auto backend, make_backend(program, o, {bytes, bytes, report.canvas}, {}));
    COHORT_TRY(backend->allocate_cache(kv_type, most));
    return backend;
  };
  {
    COHORT_ASSIGN(auto backend, make(engine));
    report.device = backend->description();
    COHORT_TRY(add(*backend, kAlone, "", options.tokens));
    for (const Schedule& schedule : schedules()) COHORT_TRY(add(*backend, schedule, "", options.tokens));
  }
  if (engine.backend == "fast" && (engine.device == "cpu" || engine.device == "auto")) {
    for (const int32_t threads : {1, 2, 3, 8}) {
      EngineOptions other = engine;
      other.threads = threads;
      COHORT_ASSIGN(auto backend, make(other));
      COHORT_TRY(add(*backend, {"in company, chunks of 16", true, {16}}, backend->description(), options.tokens));
    }
    for (const Isa isa : available_isas()) {
      EngineOptions other = engine;
      other.isa = isa_name(isa);
      COHORT_ASSIGN(auto backend, make(other));
      const int32_t tokens = isa == Isa::scalar ? std::min(options.tokens, options.reference_tokens) : options.tokens;
      COHORT_TRY(add(*backend, {"in company, chunks of 9", true, {9}}, backend->description(), tokens));
    }
  }
  if (options.reference && engine.backend == "fast") {
    EngineOptions other = engine;
    other.backend = "reference";
    other.device = "cpu";
    other.device_memory = 0;
    other.expert_counts.clear();
    COHORT_ASSIGN(auto backend, make(other));
    COHORT_TRY(add(*backend, {"in company, chunks of 4", true, {4}}, backend->description(),
                   std::min(options.tokens, options.reference_tokens)));
  }
  return report;
}

}  // namespace cohort
