#include "kernels/cuda/float_matrix.cuh"

namespace cohort::cuda {

void launch_float_matrix_f16(Mode mode, bool few, const FloatMatrixArgs& args, int sms, cudaStream_t stream) {
  launch_float_matrix_type<FloatType::f16>(mode, few, args, sms, stream);
}

}  // namespace cohort::cuda
