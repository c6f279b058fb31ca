// Dispatch of the quantised linear layers to the format's translation unit.
#include "kernels/cuda/linear_stream.cuh"

namespace cohort::cuda {

#define COHORT_FORMAT(name)                                                                              \
  void launch_stream_##name(Mode mode, bool wide, const LinearArgs& args, int sms, cudaStream_t stream); \
  void launch_tiles_##name(Mode mode, const LinearArgs& args, int sms, cudaStream_t stream)
COHORT_FORMAT(q4);
COHORT_FORMAT(q8);
COHORT_FORMAT(k4);
COHORT_FORMAT(k6);
COHORT_FORMAT(generic);
#undef COHORT_FORMAT

bool stream_fits(const Geometry& geometry) {
  return stream_layout(geometry, 1, 1, true).total <= kSharedOne;
}

void launch_stream(Format format, Mode mode, bool wide, const LinearArgs& args, int sms, cudaStream_t stream) {
  switch (format) {
    case Format::q4:
      return launch_stream_q4(mode, wide, args, sms, stream);
    case Format::q8:
      return launch_stream_q8(mode, wide, args, sms, stream);
    case Format::k4:
      return launch_stream_k4(mode, wide, args, sms, stream);
    case Format::k6:
      return launch_stream_k6(mode, wide, args, sms, stream);
    case Format::generic:
      return launch_stream_generic(mode, wide, args, sms, stream);
  }
}

void launch_tiles(Format format, Mode mode, const LinearArgs& args, int sms, cudaStream_t stream) {
  switch (format) {
    case Format::q4:
      return launch_tiles_q4(mode, args, sms, stream);
    case Format::q8:
      return launch_tiles_q8(mode, args, sms, stream);
    case Format::k4:
      return launch_tiles_k4(mode, args, sms, stream);
    case Format::k6:
      return launch_tiles_k6(mode, args, sms, stream);
    case Format::generic:
      return launch_tiles_generic(mode, args, sms, stream);
  }
}

}  // namespace cohort::cuda
