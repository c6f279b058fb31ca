#include "kernels/cuda/experts.cuh"

namespace cohort::cuda {

void launch_up_k6(const Geometry& geometry, const UpArgs& args, int sms, cudaStream_t stream) {
  launch_up_format<Format::k6>(geometry, args, sms, stream);
}
void launch_down_k6(bool small, const Geometry& geometry, const DownArgs& args, int sms, cudaStream_t stream) {
  launch_down_format<Format::k6>(small, geometry, args, sms, stream);
}

}  // namespace cohort::cuda
