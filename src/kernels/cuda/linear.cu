// Dispatch of the quantised linear layers to the format's translation unit.
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/linear_stream.cuh"

namespace cohort::cuda {

#define COHORT_FORMAT(name)                                                                          \
  void launch_stream_##name(bool wide, const LinearArgs& args, int sms, cudaStream_t stream);        \
  void launch_tiles_##name(Mode mode, const LinearArgs& args, int sms, cudaStream_t stream);         \
  void launch_up_##name(const Geometry& geometry, const UpArgs& args, int sms, cudaStream_t stream); \
  void launch_down_##name(bool small, const Geometry& geometry, const DownArgs& args, int sms, cudaStream_t stream)
COHORT_FORMAT(q4);
COHORT_FORMAT(q8);
COHORT_FORMAT(k4);
COHORT_FORMAT(k6);
COHORT_FORMAT(generic);
#undef COHORT_FORMAT
void launch_float_matrix_f32(Mode mode, bool few, const FloatMatrixArgs& args, int sms, cudaStream_t stream);
void launch_float_matrix_f16(Mode mode, bool few, const FloatMatrixArgs& args, int sms, cudaStream_t stream);
void launch_float_matrix_bf16(Mode mode, bool few, const FloatMatrixArgs& args, int sms, cudaStream_t stream);

namespace {

/// Calls f with the format's functions; see the macro above.
template <class... Args>
void dispatch(Format format, void (*q4)(Args...), void (*q8)(Args...), void (*k4)(Args...), void (*k6)(Args...),
              void (*generic)(Args...), Args... args) {
  switch (format) {
    case Format::q4:
      return q4(args...);
    case Format::q8:
      return q8(args...);
    case Format::k4:
      return k4(args...);
    case Format::k6:
      return k6(args...);
    case Format::generic:
      return generic(args...);
  }
}

bool with_sums(Format format) {
  return format == Format::k4 || format == Format::generic;
}

}  // namespace

bool stream_fits(Format format, const Geometry& geometry) {
  return stream_plan(geometry, 1, 1, with_sums(format)).total <= kSharedOne;
}

bool experts_fit(Format pair_format, const Geometry& pair, Format down_format, const Geometry& down) {
  return up_plan(shape_of(pair_format), with_sums(pair_format), pair).slots > 0 &&
         down_plan(with_sums(down_format), down, 8 * kMaxTopK, kSharedOne).workers > 0 &&
         down_plan(with_sums(down_format), down, 0, kSharedOne).workers > 0;
}

void launch_float_matrix(FloatType type, Mode mode, bool few, const FloatMatrixArgs& args, int sms,
                         cudaStream_t stream) {
  switch (type) {
    case FloatType::f32:
      return launch_float_matrix_f32(mode, few, args, sms, stream);
    case FloatType::f16:
      return launch_float_matrix_f16(mode, few, args, sms, stream);
    case FloatType::bf16:
      return launch_float_matrix_bf16(mode, few, args, sms, stream);
  }
}

void launch_stream(Format format, bool wide, const LinearArgs& args, int sms, cudaStream_t stream) {
  dispatch<bool, const LinearArgs&, int, cudaStream_t>(format, launch_stream_q4, launch_stream_q8, launch_stream_k4,
                                                       launch_stream_k6, launch_stream_generic, wide, args, sms,
                                                       stream);
}

void launch_tiles(Format format, Mode mode, const LinearArgs& args, int sms, cudaStream_t stream) {
  dispatch<Mode, const LinearArgs&, int, cudaStream_t>(format, launch_tiles_q4, launch_tiles_q8, launch_tiles_k4,
                                                       launch_tiles_k6, launch_tiles_generic, mode, args, sms, stream);
}

void launch_up(Format format, const Geometry& geometry, const UpArgs& args, int sms, cudaStream_t stream) {
  dispatch<const Geometry&, const UpArgs&, int, cudaStream_t>(
      format, launch_up_q4, launch_up_q8, launch_up_k4, launch_up_k6, launch_up_generic, geometry, args, sms, stream);
}

void launch_down(Format format, bool small, const Geometry& geometry, const DownArgs& args, int sms,
                 cudaStream_t stream) {
  dispatch<bool, const Geometry&, const DownArgs&, int, cudaStream_t>(
      format, launch_down_q4, launch_down_q8, launch_down_k4, launch_down_k6, launch_down_generic, small, geometry,
      args, sms, stream);
}

}  // namespace cohort::cuda
