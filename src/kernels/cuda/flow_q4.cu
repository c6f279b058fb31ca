#include "kernels/cuda/flow.cuh"

namespace cohort::cuda {

flow::FlowKernel flow_kernel_q4() {
  return flow::kernel_of<Format::q4, Format::q4>();
}

}  // namespace cohort::cuda
