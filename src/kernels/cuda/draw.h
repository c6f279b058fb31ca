// The choice of a token from all logits of a row, where its 64 largest do not tell (docs/NUMERICS.md, rule 8).
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/args.h"

namespace cohort::cuda {

struct DrawArgs {
  Step step;
  const float* logits = nullptr;  // [sampled, vocabulary]
  int32_t vocabulary = 0;
  const DrawRule* rules = nullptr;  // [sampled], mapped host memory
  Draw* draws = nullptr;            // [sampled], mapped host memory
};
void launch_draw(const DrawArgs& args, int sms, cudaStream_t stream);
/// Whether a vocabulary of this size fits the shared memory of launch_draw.
bool draw_fits(int32_t vocabulary);

}  // namespace cohort::cuda
