#include "kernels/cuda/linear_stream.cuh"
#include "kernels/cuda/linear_tiles.cuh"

namespace cohort::cuda {

void launch_stream_generic(bool wide, const LinearArgs& args, int sms, cudaStream_t stream) {
  launch_stream_format<Format::generic>(wide, args, sms, stream);
}
void launch_tiles_generic(Mode mode, const LinearArgs& args, int sms, cudaStream_t stream) {
  launch_tiles_format<Format::generic>(mode, args, sms, stream);
}

}  // namespace cohort::cuda
