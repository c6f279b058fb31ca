#include "measure/soak.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string_view>
#include <unordered_map>

#include "base/memory.h"
#include "base/result.h"
#include "engine/backend_choice.h"
#include "kv/pages.h"
#include "measure/fed_streams.h"
#include "models/model.h"

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

/// What allocators keep and give back at will.
constexpr size_t kSlack = size_t{32} << 20;

/// A request with what it answers alone.
struct Known {
  SequenceRequest request;
  std::vector<int32_t> tokens;
  std::vector<size_t> logits;  // a hash of each token's logits; empty where the device gives only the largest
};

/// Half of the prompts begin like others, so that pages are shared; lengths, temperatures and ends are mixed.
std::vector<Known> make_requests(const SoakOptions& options, int32_t vocabulary) {
  std::mt19937_64 random(options.seed);
  const auto below = [&](int32_t n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
  std::vector<int32_t> common(static_cast<size_t>(options.positions / 4));
  for (int32_t& token : common) token = below(vocabulary);
  std::vector<Known> all(static_cast<size_t>(options.requests));
  for (size_t i = 0; i < all.size(); ++i) {
    SequenceRequest& r = all[i].request;
    const int32_t shared = i % 2 == 0 ? 0 : 1 + below(options.positions / 4);
    const int32_t own = 1 + below(options.positions / 8);
    r.prompt.assign(common.begin(), common.begin() + shared);
    for (int32_t t = 0; t < own; ++t) r.prompt.push_back(below(vocabulary));
    r.max_tokens = 1 + below(options.positions * 5 / 8);
    r.sampling.temperature = i % 3 == 0 ? 0.0F : 0.5F + 0.1F * static_cast<float>(below(8));
    r.sampling.seed = random();
  }
  return all;
}

class Soak {
 public:
  Soak(const SoakOptions& options, const std::function<void(const std::string&)>& progress)
      : options_(options), progress_(progress), random_(options.seed + 1) {}

  Expected<SoakReport> run() {
    COHORT_TRY(answers_alone());
    EngineOptions engine = options_.engine;
    // The longest request fits, and so few others beside it that streams lose their pages to older ones.
    engine.context = options_.positions;
    engine.kv_positions = int64_t{pages_for(options_.positions)} * kPagePositions * std::max(1, engine.max_streams / 4);
    COHORT_ASSIGN(engine_, Engine::create(engine));
    const Program& program = engine_->model().program();
    report_.model = engine_->model().config().name;
    report_.type = main_type(program);
    report_.device = engine_->description();
    const auto start = Clock::now();
    double said = 0;
    for (;;) {
      report_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
      const bool over = report_.seconds >= options_.seconds;
      if (over && engine_->idle()) break;
      if (report_.resident_early == 0 && report_.seconds > options_.seconds / 10) {
        report_.resident_early = resident_memory();
      }
      if (progress_ && report_.seconds >= said + 1) {
        said = report_.seconds;
        progress_(
            fmt::format("{:.0f} s: {} streams in flight, {} ended, {} cancelled, {} preempted, {} tokens, {} differ",
                        said, running_.size(), report_.finished, report_.cancelled, report_.preemptions, report_.tokens,
                        report_.differing));
      }
      if (!over) COHORT_TRY(come_and_go());
      COHORT_TRY(step());
    }
    const Capacity capacity = engine_->capacity();
    report_.lost_pages = capacity.pages - capacity.free_pages;
    report_.resident_end = resident_memory();
    return std::move(report_);
  }

 private:
  struct Running {
    Known* known;
    size_t next = 0;
  };

  Expected<void> answers_alone() {
    EngineOptions alone = options_.alone;
    alone.context = options_.positions;
    alone.kv_positions = int64_t{pages_for(options_.positions)} * kPagePositions;
    alone.max_streams = 1;
    COHORT_ASSIGN(engine_, Engine::create(alone));
    known_ = make_requests(options_, vocabulary());
    for (size_t i = 0; i < known_.size(); ++i) {
      Known& known = known_[i];
      if (progress_ && i % 8 == 0) progress_(fmt::format("answers alone: {} of {}", i, known_.size()));
      COHORT_TRY(engine_->submit(known.request));
      while (!engine_->idle()) {
        COHORT_ASSIGN(const StepReport report, engine_->step());
        for (size_t e = 0; e < report.events.size(); ++e) {
          COHORT_TRY(check_event(report.events[e]));
          known.tokens.push_back(report.events[e].sample.token);
          if (const auto hash = hash_of_logits(e)) known.logits.push_back(*hash);
        }
      }
    }
    engine_.reset();  // two copies of the weights need not fit
    return {};
  }

  int32_t vocabulary() const { return engine_->model().program().vocabulary; }

  static Expected<void> check_event(const TokenEvent& event) {
    if (event.finish == FinishReason::failed) {
      return fail(event.error.code, "a stream failed: {}", event.error.message);
    }
    return {};
  }

  std::optional<size_t> hash_of_logits(size_t event) const {
    const auto logits = engine_->logits_of(event);
    if (logits.empty()) return std::nullopt;
    const auto bytes = std::as_bytes(logits);
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  /// At every step a stream may join, a few more than there are places, and one in fifty is cancelled.
  Expected<void> come_and_go() {
    const auto most = static_cast<size_t>(options_.engine.max_streams) * 3 / 2 + 1;
    const size_t joins = random_() % 8 == 0 ? random_() % most : random_() % 2;
    for (size_t j = 0; j < joins && running_.size() < most; ++j) {
      Known& known = known_[random_() % known_.size()];
      COHORT_ASSIGN(const SequenceId id, engine_->submit(known.request));
      running_.emplace(id, Running{&known});
    }
    if (!running_.empty() && random_() % 50 == 0) {
      const auto victim = std::next(running_.begin(), static_cast<std::ptrdiff_t>(random_() % running_.size()));
      engine_->cancel(victim->first);
      running_.erase(victim);
      ++report_.cancelled;
    }
    return {};
  }

  Expected<void> step() {
    COHORT_ASSIGN(const StepReport report, engine_->step());
    ++report_.steps;
    report_.preemptions += report.preemptions;
    report_.reused_tokens += report.reused_tokens;
    for (size_t e = 0; e < report.events.size(); ++e) {
      const TokenEvent& event = report.events[e];
      COHORT_TRY(check_event(event));
      const auto at = running_.find(event.sequence);
      if (at == running_.end()) continue;  // cancelled
      compare(at->second, event, e);
      if (event.finish == FinishReason::none) continue;
      if (at->second.next < at->second.known->tokens.size()) {
        differs(
            fmt::format("the stream ended after {} of {} tokens", at->second.next, at->second.known->tokens.size()));
      }
      running_.erase(at);
      ++report_.finished;
    }
    return {};
  }

  void compare(Running& stream, const TokenEvent& event, size_t e) {
    const Known& known = *stream.known;
    const size_t i = stream.next++;
    ++report_.tokens;
    const auto number = &known - known_.data();
    if (i >= known.tokens.size()) {
      differs(fmt::format("request {} goes on after its {} tokens", number, known.tokens.size()));
    } else if (event.sample.token != known.tokens[i]) {
      differs(fmt::format("request {}, token {}: {} instead of {}", number, i, event.sample.token, known.tokens[i]));
    } else if (const auto hash = hash_of_logits(e); hash && i < known.logits.size()) {
      ++report_.compared_logits;
      if (*hash != known.logits[i]) differs(fmt::format("request {}, token {}: other logits", number, i));
    }
  }

  void differs(std::string what) {
    if (report_.differing++ == 0) report_.first = std::move(what);
  }

  const SoakOptions& options_;
  const std::function<void(const std::string&)>& progress_;
  std::mt19937_64 random_;
  std::unique_ptr<Engine> engine_;
  std::vector<Known> known_;
  std::unordered_map<SequenceId, Running> running_;
  SoakReport report_;
};

}  // namespace

EngineOptions alone_options(const EngineOptions& engine) {
  EngineOptions alone = engine;
  alone.batching = false;
  alone.prefix_cache = false;
  alone.threads = 1;
  return alone;
}

bool SoakReport::grew() const {
  return resident_end > resident_early + resident_early / 20 + kSlack;
}

Expected<SoakReport> soak(const SoakOptions& options, const std::function<void(const std::string&)>& progress) {
  if (!(options.seconds > 0 && options.seconds <= 1e6)) {
    return fail(ErrorCode::invalid_argument, "the soak (--soak) is {} seconds; expected more than 0, at most 1000000",
                options.seconds);
  }
  if (options.requests < 1 || options.positions < 8) {
    return fail(ErrorCode::invalid_argument, "{} requests of {} positions; expected at least 1 of at least 8",
                options.requests, options.positions);
  }
  COHORT_TRY(check_measured_options(options.engine));
  return Soak(options, progress).run();
}

std::string to_text(const SoakReport& r) {
  std::string out = fmt::format(
      "{} {}, {}: {:.0f} s, {} steps, {} tokens\n"
      "  {} streams ended, {} were cancelled, {} lost their pages and were read again, {} positions came from shared "
      "pages\n"
      "  {} tokens and the logits of {} compared with the same request alone: {}\n"
      "  {} pages lost; resident memory {} early, {} at the end\n",
      r.model, r.type, r.device, r.seconds, r.steps, r.tokens, r.finished, r.cancelled, r.preemptions, r.reused_tokens,
      r.tokens, r.compared_logits,
      r.differing == 0 ? "all equal" : fmt::format("{} DIFFER; first: {}", r.differing, r.first), r.lost_pages,
      format_bytes(static_cast<double>(r.resident_early)), format_bytes(static_cast<double>(r.resident_end)));
  if (r.grew()) out += "MEMORY GREW\n";
  return out;
}

std::string to_json(const SoakReport& r) {
  return nlohmann::ordered_json{{"model", r.model},
                                {"type", r.type},
                                {"device", r.device},
                                {"seconds", r.seconds},
                                {"steps", r.steps},
                                {"tokens", r.tokens},
                                {"finished", r.finished},
                                {"cancelled", r.cancelled},
                                {"preemptions", r.preemptions},
                                {"reused_tokens", r.reused_tokens},
                                {"compared_logits", r.compared_logits},
                                {"differing", r.differing},
                                {"first_difference", r.first},
                                {"lost_pages", r.lost_pages},
                                {"resident_early", r.resident_early},
                                {"resident_end", r.resident_end},
                                {"passed", r.passed()}}
             .dump(2) +
         "\n";
}

}  // namespace cohort
