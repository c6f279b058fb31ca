#include "kernels/cuda/experts.cuh"

namespace cohort::cuda {

void launch_up_generic(const Geometry& geometry, const UpArgs& args, int sms, cudaStream_t stream) {
  launch_up_format<Format::generic>(geometry, args, sms, stream);
}
void launch_down_generic(bool small, const Geometry& geometry, const DownArgs& args, int sms, cudaStream_t stream) {
  launch_down_format<Format::generic>(small, geometry, args, sms, stream);
}

}  // namespace cohort::cuda
