// A long run of random company: streams join, end and are cancelled at random, lose their pages and share prefixes, and
// every token and every bit of every logit is compared with what the same request gave alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cohort/engine.h"

namespace cohort {

struct SoakOptions {
  EngineOptions engine;     // in company; its KV memory is made too small on purpose, so that streams are preempted
  EngineOptions alone;      // what the requests' answers are made with first, one after the other
  double seconds = 60;      // in company
  int32_t requests = 24;    // different ones, of which random ones run at any time
  int32_t positions = 256;  // prompt and answer of one request have at most so many
  uint64_t seed = 1;
};

/// The options of the run alone that fit a run in company: no batch, no shared pages, one thread.
EngineOptions alone_options(const EngineOptions& engine);

struct SoakReport {
  std::string model, type, device;
  double seconds = 0;
  int64_t steps = 0, tokens = 0, finished = 0, cancelled = 0, preemptions = 0, reused_tokens = 0;
  int64_t compared_logits = 0;  // rows of logits whose bits were compared, too (a device may give only tokens)
  int64_t differing = 0;        // tokens that had another value, or other logits
  std::string first;            // the first of them, in words
  int32_t lost_pages = 0;       // that no sequence held at the end, and that were not free
  size_t resident_early = 0, resident_end = 0;  // bytes of this process after a tenth of the time, and at its end
  bool grew() const;                            // more than allocators explain
  bool passed() const { return differing == 0 && lost_pages == 0 && !grew(); }
};

/// Errors: options out of range, a model that cannot be loaded, a device that fails, a request that fails. `progress`
/// is called once a second or less often.
Expected<SoakReport> soak(const SoakOptions& options, const std::function<void(const std::string&)>& progress = {});

std::string to_text(const SoakReport& report);
std::string to_json(const SoakReport& report);

}  // namespace cohort
