#include "kernels/cuda/flow_rows.cuh"

namespace cohort::cuda {

flow::FlowKernel flow_rows_kernel_k(FlowRows rows) {
  return flow::rows_kernel_of<Format::k4, Format::k6>(rows);
}

}  // namespace cohort::cuda
