// Launch of the kernel that runs all layers of a step of one row (flow.cuh).
#include "kernels/cuda/flow.cuh"

namespace cohort::cuda {

void (*flow_kernel_q4())(FlowArgs);
void (*flow_kernel_q8())(FlowArgs);
void (*flow_kernel_k())(FlowArgs);

namespace {

using Kernel = void (*)(FlowArgs);
Kernel kernel_of(FlowFormats formats) {
  switch (formats) {
    case FlowFormats::q4:
      return flow_kernel_q4();
    case FlowFormats::q8:
      return flow_kernel_q8();
    case FlowFormats::k:
      break;
  }
  return flow_kernel_k();
}

/// Flags differ from step to step, whatever runs a step.
__global__ void flag_kernel(uint32_t* epoch, uint32_t layers) {
  wait_and_pass_on();
  *epoch += layers;
}

int grid_of(int sms) {
  return sms < FlowShape::kItems ? sms : FlowShape::kItems;
}

}  // namespace

bool flow_fits(FlowFormats formats, int sms) {
  const Kernel kernel = kernel_of(formats);
  int blocks = 0;
  return kernel != nullptr && grid_of(sms) >= FlowShape::kTiles && grid_of(sms) >= FlowShape::kExperts &&
         grid_of(sms) >= FlowShape::kHeads * FlowShape::kMaxSplits &&
         cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, flow::kAllThreads, flow::kTotal) ==
             cudaSuccess &&
         blocks >= 1;
}

void launch_flow(FlowFormats formats, const FlowArgs& args, uint32_t* epoch, int sms, cudaStream_t stream) {
  const Kernel kernel = kernel_of(formats);
  if (kernel == nullptr) return;
  launch(&flag_kernel, 1, 1, 0, stream, epoch, static_cast<uint32_t>(args.count));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid_of(sms)));
  config.blockDim = dim3(flow::kAllThreads);
  config.dynamicSmemBytes = flow::kTotal;
  config.stream = stream;
  // All blocks wait for each other.
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, args));
}

}  // namespace cohort::cuda
