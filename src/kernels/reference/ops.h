// The oracle: every operation of a program as obvious scalar code on f32 rows. docs/NUMERICS.md in C++; speed is no
// concern here. All functions compute one row, so that a backend may give rows to threads in any way.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "models/program.h"

namespace cohort::reference {

/// One chosen expert of a row.
struct RouteSlot {
  int32_t expert;
  float weight;
};

/// y[rows] = W x + bias (null: none) for slice `expert` of the weight (rules 2-4); `mode` selects the validation
/// variants.
void linear_row(const Weight& weight, int64_t expert, const float* bias, ActivationMode mode, const float* x, float* y);

/// Softmax over logits, the top k in descending order (ties to the lower index), optional renormalisation and
/// per-expert scale. NaN logits are never preferred over numbers; the expert index is always valid.
std::vector<RouteSlot> route_row(const op::Route& route, std::span<const float> logits);

/// y[cols of x] = the weighted sum over slots of down(act(gate x) * (up x)) (rule 5). `hidden` is shown what enters
/// down of every slot's expert.
using HiddenSink = std::function<void(int64_t expert, const float* hidden)>;
void experts_row(const op::Experts& experts, std::span<const RouteSlot> slots, ActivationMode mode, const float* x,
                 float* y, const HiddenSink& hidden = {});

/// What a row of a canvas was thought to hold (rule 10): y[cols of the table].
void mix_row(const op::Mix& mix, const Mixture& mixture, float* y);

/// act(gate) * up, or clamped_swiglu.
void gate_row(Activation activation, const float* gate, const float* up, int64_t count, float* y);

/// Rotates `heads` heads in place.
void rope_row(const op::Rope& rope, int32_t position, float* x);

}  // namespace cohort::reference
