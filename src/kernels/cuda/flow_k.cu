#include "kernels/cuda/flow.cuh"

namespace cohort::cuda {

void (*flow_kernel_k())(FlowArgs) {
  return flow::kernel_of<Format::k4, Format::k6>();
}

}  // namespace cohort::cuda
