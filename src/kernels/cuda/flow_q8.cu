#include "kernels/cuda/flow.cuh"

namespace cohort::cuda {

void (*flow_kernel_q8())(FlowArgs) {
  return flow::kernel_of<Format::q8, Format::q8>();
}

}  // namespace cohort::cuda
