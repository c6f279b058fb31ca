#include "kernels/cuda/float_matrix.cuh"

namespace cohort::cuda {

void launch_float_matrix_bf16(Mode mode, bool few, const FloatMatrixArgs& args, int sms, cudaStream_t stream) {
  launch_float_matrix_type<FloatType::bf16>(mode, few, args, sms, stream);
}

}  // namespace cohort::cuda
