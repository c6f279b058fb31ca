// Launch of the kernels that run all layers of a step of few rows (flow.cuh, flow_rows.cuh).
#include "kernels/cuda/flow_parts.cuh"

namespace cohort::cuda {

flow::FlowKernel flow_kernel_q4();
flow::FlowKernel flow_kernel_q8();
flow::FlowKernel flow_kernel_k();
flow::FlowKernel flow_rows_kernel_q4(FlowRows rows);
flow::FlowKernel flow_rows_kernel_q8(FlowRows rows);
flow::FlowKernel flow_rows_kernel_k(FlowRows rows);

namespace {

/// Sets its shared memory; `run` is null where the device has less.
flow::FlowKernel kernel_of(FlowFormats formats, FlowRows rows) {
  const bool one = rows == FlowRows::one;
  flow::FlowKernel kernel;
  switch (formats) {
    case FlowFormats::q4:
      kernel = one ? flow_kernel_q4() : flow_rows_kernel_q4(rows);
      break;
    case FlowFormats::q8:
      kernel = one ? flow_kernel_q8() : flow_rows_kernel_q8(rows);
      break;
    case FlowFormats::k:
      kernel = one ? flow_kernel_k() : flow_rows_kernel_k(rows);
      break;
  }
  cudaFuncSetAttribute(kernel.run, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
  if (cudaFuncSetAttribute(kernel.run, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared) != cudaSuccess)
    return {};
  return kernel;
}

/// Flags differ from step to step, whatever runs a step.
__global__ void flag_kernel(uint32_t* epoch, uint32_t layers) {
  wait_and_pass_on();
  *epoch += layers;
}

int grid_of(int sms) {
  return sms < FlowShape::kItems ? sms : FlowShape::kItems;
}

bool fits(FlowFormats formats, FlowRows rows) {
  const flow::FlowKernel kernel = kernel_of(formats, rows);
  int blocks = 0;
  return kernel.run != nullptr &&
         cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.run, flow::kAllThreads,
                                                       static_cast<size_t>(kernel.shared)) == cudaSuccess &&
         blocks >= 1;
}

}  // namespace

bool flow_fits(FlowFormats formats, int sms) {
  return grid_of(sms) >= FlowShape::kTiles && grid_of(sms) >= FlowShape::kExperts &&
         grid_of(sms) >= FlowShape::kHeads * FlowShape::kSplitBlocks && fits(formats, FlowRows::one) &&
         fits(formats, FlowRows::two) && fits(formats, FlowRows::four) && fits(formats, FlowRows::eight) &&
         fits(formats, FlowRows::sixteen);
}

void launch_flow(FlowFormats formats, FlowRows rows, const FlowArgs& args, uint32_t* epoch, int sms,
                 cudaStream_t stream) {
  const flow::FlowKernel kernel = kernel_of(formats, rows);
  if (kernel.run == nullptr) return;
  launch(&flag_kernel, 1, 1, 0, stream, epoch, static_cast<uint32_t>(args.count));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid_of(sms)));
  config.blockDim = dim3(flow::kAllThreads);
  config.dynamicSmemBytes = static_cast<size_t>(kernel.shared);
  config.stream = stream;
  // All blocks wait for each other.
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  static_cast<void>(cudaLaunchKernelEx(&config, kernel.run, args));
}

}  // namespace cohort::cuda
