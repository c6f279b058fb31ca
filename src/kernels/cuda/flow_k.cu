#include "kernels/cuda/flow.cuh"

namespace cohort::cuda {

flow::FlowKernel flow_kernel_k() {
  return flow::kernel_of<Format::k4, Format::k6>();
}

}  // namespace cohort::cuda
