// The kernel of all layers for several rows (flow_rows.cuh): what a thread of its sixteen computing warps knows.
#pragma once

#include "kernels/cuda/flow_rows_ring.cuh"

namespace cohort::cuda {
namespace flow {

template <int H>
class RowsThread {
 public:
  __device__ RowsThread(const FlowArgs& args, std::byte* ring, RowsPlace<H>& sh, const RowsShare<H>& share,
                        uint32_t epoch, int rows)
      : args_(args),
        ring_(ring),
        sh_(sh),
        share_(share),
        tid_(static_cast<int>(threadIdx.x)),
        warp_(tid_ >> 5),
        block_(static_cast<int>(blockIdx.x)),
        rows_(rows),
        flag_(epoch),
        at_(tid_ & 31) {}

 protected:
  /// Keeps the compiler from computing addresses of all phases ahead of the layers: they would not fit the registers.
  __device__ __forceinline__ void forget() {
    asm volatile("" : "+r"(tid_), "+r"(block_), "+r"(rows_), "+r"(share_.first_tile), "+r"(share_.tiles));
    asm volatile("" : "+r"(share_.row), "+r"(share_.part), "+r"(share_.first_head), "+r"(share_.rank));
    asm volatile("" : "+r"(share_.position), "+r"(share_.end));
    warp_ = tid_ >> 5;
    at_ = Lane(tid_ & 31);
    column_ = min(at_.g, rows_ - 1);
  }
  static constexpr int kColumn = RowsShared<H>::kColumn;
  static constexpr int kQkv = Shape::kAttention + 2 * Shape::kKeys;

  /// Of the layer in the middle.
  __device__ __forceinline__ void mark([[maybe_unused]] int place) const {
#ifdef COHORT_STAMPS
    if (marked_) stamp(args_.step, place);
#endif
  }
  /// The next entry of the ring plus i, when it is there.
  __device__ __forceinline__ std::byte* entry(int i) const {
    const uint32_t n = next_ + static_cast<uint32_t>(i);
    barrier_wait(&sh_.full[n % kEntries], n / kEntries & 1);
    return ring_ + sh_.place[n % kEntries];
  }
  /// After sync: all are done with so many entries.
  __device__ __forceinline__ void release(int count) {
    next_ += static_cast<uint32_t>(count);
    if (tid_ == 0) give_back(sh_, next_);
  }
  /// Sums of rows g and g + 8 and columns 2t and 2t + 1 to [columns][16].
  __device__ __forceinline__ void store_columns(float* to, const float (&acc)[4]) const {
    if (at_.t * 2 >= H) return;
    float* place = to + at_.t * 2 * kColumnFloats + at_.g;
    place[0] = acc[0];
    place[kColumnFloats] = acc[1];
    place[8] = acc[2];
    place[kColumnFloats + 8] = acc[3];
  }

  /// Shared x and its norm's factor, of this block's row: its values (warp * 4 + j) * 32 + lane.
  __device__ __forceinline__ float norm(const float (&x)[4], float eps) {
    float* row = sh_.x();
#pragma unroll
    for (int j = 0; j < 4; ++j) row[packed((warp_ * 4 + j) * 32 + at_.lane)] = x[j];
    sync();
    if (warp_ == 0) {
      const float factor = norm_factor(squares(row, at_.lane), Shape::kHidden, eps);
      if (at_.lane == 0) sh_.factor = factor;
    }
    sync();
    return sh_.factor;
  }
  __device__ __forceinline__ void take_row(const Flagged* from, float (&x)[4]) const {
    uint32_t bits[4];
    take<4>([&](int j) { return from + (warp_ * 4 + j) * 32 + at_.lane; }, flag_, bits);
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] = __uint_as_float(bits[j]);
  }

  const FlowArgs& args_;
  std::byte* ring_;
  RowsPlace<H>& sh_;
  RowsShare<H> share_;
  int tid_, warp_, block_, rows_;
  uint32_t flag_;  // of this layer
  uint32_t next_ = 0;
#ifdef COHORT_STAMPS
  bool marked_ = false;
#endif
  Lane at_;
  int column_ = 0;  // the row that this lane reads in products
};

}  // namespace flow
}  // namespace cohort::cuda
