// Which rows run in the next step. A pure function of the sequences' states, so that it can be tested without a model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cohort {

/// What the scheduler sees of a running sequence, in order of arrival.
struct Pending {
  int32_t rows = 0;       // tokens whose K and V are not in the cache yet (>= 1)
  bool decoding = false;  // the prompt has been read
};

/// Rows to run of each sequence (0 = not in this step). Decoding sequences always get all their rows, prompts share
/// `prefill_rows` in order of arrival; so a long prompt never keeps others from their next token for longer than
/// prefill_rows take.
std::vector<int32_t> schedule(std::span<const Pending> sequences, int32_t prefill_rows);

}  // namespace cohort
