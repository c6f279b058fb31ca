// The kernel of all layers for several rows (flow_rows.cuh): what a thread of its sixteen computing warps knows.
#pragma once

#include "kernels/cuda/flow_rows_ring.cuh"

namespace cohort::cuda {
namespace flow {

template <int H>
class RowsThread {
 public:
  using Sizes = RowsSizes<H>;
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
        at_(tid_ & 31),
        position_(share.position(args.step, rows, tid_ / Sizes::kTeam)) {}

 protected:
  /// Keeps the compiler from computing addresses of all phases ahead of the layers: they would not fit the registers.
  __device__ __forceinline__ void forget() {
    asm volatile("" : "+r"(tid_), "+r"(block_), "+r"(rows_), "+r"(share_.first_tile), "+r"(share_.tiles));
    asm volatile("" : "+r"(share_.row), "+r"(share_.part), "+r"(share_.first_head), "+r"(position_));
    warp_ = tid_ >> 5;
    at_ = Lane(tid_ & 31);
  }
  static constexpr int kGroups = Sizes::kGroups, kEach = Sizes::kEach, kColumn = Sizes::kColumn;
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
  /// The row that this lane reads in products, of a group of columns.
  __device__ __forceinline__ int column(int group) const {
    return min(group * kEach + at_.g, rows_ - 1);
  }
  /// Sums of rows g and g + 8 and columns 2t and 2t + 1 to [columns][16].
  __device__ __forceinline__ void store_columns(float* to, const float (&acc)[4]) const {
    if (at_.t * 2 >= kEach) return;
    float* place = to + at_.t * 2 * kColumnFloats + at_.g;
    place[0] = acc[0];
    place[kColumnFloats] = acc[1];
    place[8] = acc[2];
    place[kColumnFloats + 8] = acc[3];
  }

  /// Rows whose norms and router this block shares; the first is there where share_.row is.
  __device__ __forceinline__ bool present(int i) const {
    return i == 0 || share_.row + i * kEach < rows_;
  }
  __device__ __forceinline__ int row_of(int i) const {
    return present(i) ? share_.row + i * kEach : share_.row;
  }
  __device__ __forceinline__ int present_rows() const {
    return present(kGroups - 1) ? kGroups : 1;
  }

  /// This block's rows to shared x, and their norms' factors to factors: values (warp * 4 + j) * 32 + lane of each.
  __device__ __forceinline__ void norm(const float (&x)[kGroups][4], float eps) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sh_.x(i)[packed((warp_ * 4 + j) * 32 + at_.lane)] = x[i][j];
    }
    sync();
    if (warp_ < kGroups) {
      const float factor = norm_factor_of<Shape::kHidden>(squares(sh_.x(warp_), at_.lane), eps);
      if (at_.lane == 0) sh_.factors[warp_] = factor;
    }
    sync();
  }
  /// This block's rows of [rows][hidden].
  __device__ __forceinline__ void take_rows(const Flagged* from, float (&x)[kGroups][4]) const {
    uint32_t bits[kGroups * 4];
    take<kGroups * 4>(
        [&](int i) { return from + row_of(i / 4) * Shape::kHidden + (warp_ * 4 + i % 4) * 32 + at_.lane; }, flag_,
        bits);
#pragma unroll
    for (int i = 0; i < kGroups * 4; ++i) x[i / 4][i % 4] = __uint_as_float(bits[i]);
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
  int position_;  // of the team's row, -1: none
};

}  // namespace flow
}  // namespace cohort::cuda
