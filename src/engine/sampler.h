// Chooses tokens from logits. A pure function of the row's logits, the sequence's own tokens, its parameters and the
// position.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cohort/error.h"
#include "cohort/sampling.h"
#include "kernels/backend.h"

namespace cohort {

/// Refuses values outside of their range; `vocabulary` bounds the ids of logit_bias. The message names the field.
Expected<void> check(const SamplingParams& params, int32_t vocabulary);

/// logits [vocabulary]; `tokens`: the sequence so far, prompt included; `position` of the token that is
/// chosen; `allowed`: bit t % 64 of [t / 64] for every token that may be chosen, empty for all. Errors: internal when
/// the logits hold a NaN (the weights are broken), so that nothing is invented silently.
Expected<Sample> sample(std::span<const float> logits, const SamplingParams& params, std::span<const int32_t> tokens,
                        uint32_t position, std::span<const uint64_t> allowed = {});

/// The same choice from the row's largest logits (Backend::run_top()) and the draw that draw_rule() asked for; nothing
/// when it could depend on others: penalties, a bias, log probabilities, a top_k or top_p that takes more than them, or
/// ties at its edge.
std::optional<Sample> sample_top(std::span<const TopLogit> top, const Draw& draw, const SamplingParams& params,
                                 uint32_t position);

/// What a device has to do with a row's logits so that sample_top() can choose where top_k is off.
DrawRule draw_rule(const SamplingParams& params, uint32_t position, int32_t vocabulary);
/// What the device then gives: the definition. A token -1 when a logit is NaN or the largest one is infinite.
Draw draw_from(std::span<const float> logits, const DrawRule& rule);

}  // namespace cohort
