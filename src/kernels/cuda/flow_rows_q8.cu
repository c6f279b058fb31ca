#include "kernels/cuda/flow_rows.cuh"

namespace cohort::cuda {

flow::FlowKernel flow_rows_kernel_q8(FlowRows rows) {
  return flow::rows_kernel_of<Format::q8, Format::q8>(rows);
}

}  // namespace cohort::cuda
