#include "kernels/cuda/experts.cuh"

namespace cohort::cuda {

void launch_up_q8(const Geometry& geometry, const UpArgs& args, int sms, cudaStream_t stream) {
  launch_up_format<Format::q8>(geometry, args, sms, stream);
}
void launch_down_q8(bool small, const Geometry& geometry, const DownArgs& args, int sms, cudaStream_t stream) {
  launch_down_format<Format::q8>(small, geometry, args, sms, stream);
}

}  // namespace cohort::cuda
