#include "kernels/cuda/flow.cuh"

namespace cohort::cuda {

void (*flow_kernel_q4())(FlowArgs) {
  return flow::kernel_of<Format::q4, Format::q4>();
}

}  // namespace cohort::cuda
