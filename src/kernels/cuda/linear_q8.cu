#include "kernels/cuda/linear_stream.cuh"
#include "kernels/cuda/linear_tiles.cuh"

namespace cohort::cuda {

void launch_stream_q8(bool wide, const LinearArgs& args, int sms, cudaStream_t stream) {
  launch_stream_format<Format::q8>(wide, args, sms, stream);
}
void launch_tiles_q8(Mode mode, const LinearArgs& args, int sms, cudaStream_t stream) {
  launch_tiles_format<Format::q8>(mode, args, sms, stream);
}

}  // namespace cohort::cuda
