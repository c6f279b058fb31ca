#include "kernels/cuda/linear_stream.cuh"
#include "kernels/cuda/linear_tiles_wide.cuh"

namespace cohort::cuda {

void launch_stream_q4(bool wide, const LinearArgs& args, int sms, cudaStream_t stream) {
  launch_stream_format<Format::q4>(wide, args, sms, stream);
}
void launch_tiles_q4(Mode mode, const LinearArgs& args, int sms, cudaStream_t stream) {
  if (!wide::launch_tiles(mode, args, sms, stream)) launch_tiles_format<Format::q4>(mode, args, sms, stream);
}

}  // namespace cohort::cuda
