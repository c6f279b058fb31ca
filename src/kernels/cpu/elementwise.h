// Everything of a step on the CPU that is neither a matrix nor attention: norms, rope, activations, routing. Pure
// functions of rows that the caller gives to threads as it likes; bits of docs/NUMERICS.md on every instruction set.
// Pointers need no alignment; lengths are any positive number; outputs may be the same as inputs but not overlap them
// otherwise.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.h"
#include "models/program.h"

namespace cohort::cpu {

/// How a router's logits become routes; the fields of op::Route without its matrix.
struct RouteRule {
  int32_t experts, top_k;  // 1 <= top_k <= experts
  bool renormalise;
  const float* per_expert_scale = nullptr;  // [experts] or null
};

struct ElementwiseKernels {
  /// y[i] = rms_norm of each of `groups` groups of `group` consecutive values; weight [group] or null.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t group, int64_t groups, float* y);
  /// sum = x + r, y = rms_norm(sum) * weight: the residual before a norm, one group.
  void (*add_rms_norm)(const float* x, const float* r, const float* weight, float eps, int64_t count, float* sum,
                       float* y);
  /// y = r + rms_norm(x) * weight: a norm before the residual (Gemma), one group.
  void (*rms_norm_add)(const float* x, const float* r, const float* weight, float eps, int64_t count, float* y);
  /// Rotates `heads` heads of `head_dim` values in place. cosines, sines [pairs]: the row's entries of the table.
  /// half_split: values i and i + pairs; adjacent: 2i and 2i + 1.
  void (*rope)(float* x, const float* cosines, const float* sines, int32_t pairs, RopePairing pairing, int32_t heads,
               int32_t head_dim);
  /// y = a + b.
  void (*add)(const float* a, const float* b, int64_t count, float* y);
  /// y = x * factor, y = x * factors.
  void (*scale)(const float* x, float factor, int64_t count, float* y);
  void (*multiply)(const float* x, const float* factors, int64_t count, float* y);
  /// y = cap * tanh(x / cap).
  void (*softcap)(const float* x, float cap, int64_t count, float* y);
  /// y = act(gate) * up, or clamped_swiglu.
  void (*gate)(Activation activation, const float* gate, const float* up, int64_t count, float* y);
  /// Softmax over x in place.
  void (*softmax)(float* x, int64_t count);
  /// One row's routes from its logits, which become scratch. experts, weights [top_k], in descending order of
  /// probability, ties to the lower expert; NaN is chosen last, by index, so that every expert is valid.
  void (*route)(const RouteRule& rule, float* logits, int32_t* experts, float* weights);
  /// y[i] = fma(weights[k], table[indices[k] * width + i], y[i]) for k = 0, 1, ... count - 1 in order.
  void (*mix)(const float* table, const int32_t* indices, const float* weights, int64_t count, int64_t width, float* y);
  /// The lowest index of the largest number; NaN never counts; 0 when nothing but NaN is there.
  int64_t (*argmax)(const float* x, int64_t count);
};

/// The kernels of an instruction set that this build has (amx uses avx512's; anything it was not built for: scalar's).
const ElementwiseKernels& elementwise_kernels(Isa isa);

}  // namespace cohort::cpu
