// One timeline: its tokens, how far the cache has them, its pages and how it samples.
#pragma once

#include <cstdint>
#include <vector>

#include "cohort/engine.h"

namespace cohort {

struct Sequence {
  SequenceId id = 0;
  SequenceRequest request;
  std::vector<int32_t> tokens;  // prompt, then what was generated
  int32_t cached = 0;           // positions whose K and V are in the cache
  std::vector<int32_t> pages;

  int32_t prompt_size() const { return static_cast<int32_t>(request.prompt.size()); }
  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  int32_t generated() const { return size() - prompt_size(); }
  bool decoding() const { return cached >= prompt_size(); }
};

}  // namespace cohort
