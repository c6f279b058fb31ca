#include "kernels/cuda/flow_rows.cuh"

namespace cohort::cuda {

flow::FlowKernel flow_rows_kernel_q4(FlowRows rows) {
  return flow::rows_kernel_of<Format::q4, Format::q4>(rows);
}

}  // namespace cohort::cuda
