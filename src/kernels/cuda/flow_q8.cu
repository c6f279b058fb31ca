#include "kernels/cuda/flow.cuh"

namespace cohort::cuda {

flow::FlowKernel flow_kernel_q8() {
  return flow::kernel_of<Format::q8, Format::q8>();
}

}  // namespace cohort::cuda
