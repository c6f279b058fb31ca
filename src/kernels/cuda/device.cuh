// Device primitives: programmatic dependent launch, mbarriers and bulk copies, mma, and the canonical reductions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/args.h"
#include "numerics/functions.h"

namespace cohort::cuda {

using Ops = numerics::ScalarOps;

inline constexpr unsigned kFullMask = 0xffffffffU;

/// The kernel before this one in the stream has finished and its writes are visible; then the next kernel's blocks may
/// start (up to their own wait) as soon as there is room. Every kernel calls this, and passes on only after it waited:
/// so when a kernel starts, all but the one before it have finished, and it may read their results before its own wait.
__device__ __forceinline__ void wait_and_pass_on() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// Built with COHORT_STAMPS: the block's first thread notes the cycle it is at, for `device_check stamps`. Place 0 is
/// the start, the next the SM, the last the nanosecond of the start; `second`: of a launch's second kernel.
#ifdef COHORT_STAMPS
__device__ __forceinline__ void stamp(const Step& step, int place, int second = 0) {
  if (threadIdx.x != 0 || blockIdx.x >= kStampBlocks) return;
  unsigned long long* to =
      step.stamps + ((int64_t{step.launch} * 2 + second) * kStampBlocks + blockIdx.x) * kStampWords;
  unsigned long long now, cycle;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycle)::"memory");
  to[place == 0 ? 0 : place + 1] = cycle;
  if (place != 0) return;
  unsigned sm;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  to[1] = sm + 1;
  to[kStampWords - 1] = now;
}
#else
__device__ __forceinline__ void stamp(const Step&, int, int = 0) {}
#endif

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
/// One contiguous copy of `bytes` (a multiple of 16) that completes on the barrier.
__device__ __forceinline__ void bulk_copy(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

/// Asks for `bytes` (a multiple of 16) of device memory to come into the L2 cache.
__device__ __forceinline__ void bulk_prefetch(const void* global, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

/// What this thread knows of, its block's writes before a barrier included, is seen by who learns of it through an
/// atomic operation that follows; and what came before such an operation by this thread's block after it. Lighter
/// than __threadfence, which orders all threads' reads and writes alike.
__device__ __forceinline__ void fence_device() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

/// Shared memory that this thread wrote or read may now be written by bulk copies.
__device__ __forceinline__ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <int Bytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(shared)), "l"(global), "n"(Bytes)
                 : "memory");
  }
}
__device__ __forceinline__ void copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int Pending>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

/// Asks for a line that is needed soon.
__device__ __forceinline__ void prefetch(const void* global) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(global));
}

/// d = a (16 x 32, int8) * b (32 x 8, int8) + start in every element.
__device__ __forceinline__ void mma_k32(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int start) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
}
__device__ __forceinline__ void mma_k16(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t b, int start) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a0), "r"(a1), "r"(b), "r"(start));
}

/// d += a * b.
__device__ __forceinline__ void mma_k32_more(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_k16_more(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a0), "r"(a1), "r"(b));
}

/// tree16 over the 16 lanes of a half-warp; every lane gets the result (a butterfly adds the same pairs).
__device__ __forceinline__ float tree16(float x) {
  x = __fadd_rn(x, __shfl_xor_sync(kFullMask, x, 8));
  x = __fadd_rn(x, __shfl_xor_sync(kFullMask, x, 4));
  x = __fadd_rn(x, __shfl_xor_sync(kFullMask, x, 2));
  return __fadd_rn(x, __shfl_xor_sync(kFullMask, x, 1));
}

/// The same where only half-warps are sure to be here.
__device__ __forceinline__ float tree16_half(float x) {
  const unsigned mask = (threadIdx.x & 16) != 0 ? 0xffff0000U : 0x0000ffffU;
  x = __fadd_rn(x, __shfl_xor_sync(mask, x, 8));
  x = __fadd_rn(x, __shfl_xor_sync(mask, x, 4));
  x = __fadd_rn(x, __shfl_xor_sync(mask, x, 2));
  return __fadd_rn(x, __shfl_xor_sync(mask, x, 1));
}

/// tree over Count values that lie `stride` floats apart.
template <int Count>
__device__ __forceinline__ float tree_of(const float* p, int stride) {
  if constexpr (Count == 1) {
    return p[0];
  } else {
    return __fadd_rn(tree_of<Count / 2>(p, stride), tree_of<Count / 2>(p + Count / 2 * stride, stride));
  }
}
__device__ __forceinline__ float tree_of(const float* p, int stride, int count) {
  switch (count) {
    case 1:
      return tree_of<1>(p, stride);
    case 2:
      return tree_of<2>(p, stride);
    case 4:
      return tree_of<4>(p, stride);
    case 8:
      return tree_of<8>(p, stride);
    case 16:
      return tree_of<16>(p, stride);
    default:
      return tree_of<32>(p, stride);
  }
}

/// What a gate and an up of an expert become; `at`: of this output among those of all experts.
__device__ __forceinline__ float gated(Act act, const PairBias& bias, int64_t at, float gate, float up) {
  if (bias.gate != nullptr) gate = __fadd_rn(gate, bias.gate[at]);
  if (bias.up != nullptr) up = __fadd_rn(up, bias.up[at]);
  if (act == Act::clamped_swiglu) return numerics::clamped_swiglu<Ops>(gate, up);
  return __fmul_rn(act == Act::silu ? numerics::silu<Ops>(gate) : numerics::gelu_tanh<Ops>(gate), up);
}

struct BlockScale {
  float d, inverse;
};
/// Rule 2 for a block whose largest absolute value has these bits.
__device__ __forceinline__ BlockScale block_scale(uint32_t amax_bits) {
  const float amax = __uint_as_float(amax_bits);
  if (amax_bits >= 0x7f800000U) return {__uint_as_float(0x7fc00000U), 0.0F};
  if (amax < 0x1p-100F) return {0.0F, 0.0F};
  return {__fdiv_rn(amax, 127.0F), __fdiv_rn(127.0F, amax)};
}
__device__ __forceinline__ int quantise_value(float x, const BlockScale& scale) {
  // inverse is 0 only where q must be 0; x may then be infinite or NaN.
  return scale.inverse == 0.0F ? 0 : __float2int_rn(__fmul_rn(x, scale.inverse));
}

/// Quantises one 32-block of a row, lane = value.
__device__ __forceinline__ void quantise_block(float x, int lane, const Quantised& out, int64_t row, int block) {
  const uint32_t amax = __reduce_max_sync(kFullMask, __float_as_uint(x) & 0x7fffffffU);
  const BlockScale s = block_scale(amax);
  const int q = quantise_value(x, s);
  const int packed = __reduce_add_sync(kFullMask, lane < 16 ? q : q * 65536);
  std::byte* record = out.data + row * out.stride;
  record[block * 32 + activation_slot(lane)] = static_cast<std::byte>(q);
  std::byte* scales = record + out.blocks * 32 + block * 4;
  if (lane == 0) {
    *reinterpret_cast<float*>(scales) = s.d;
    *reinterpret_cast<int32_t*>(scales + out.blocks * 4) = packed;
  }
}
/// quantise_block of Count blocks, `step` apart from `block` on; those past `blocks` are left out. Lane i divides for
/// block i.
template <int Count>
__device__ __forceinline__ void quantise_blocks(const float (&x)[Count], int lane, const Quantised& out, int64_t row,
                                                int block, int step, int blocks) {
  uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    const uint32_t other = __reduce_max_sync(kFullMask, __float_as_uint(x[i]) & 0x7fffffffU);
    if (lane % Count == i) amax = other;
  }
  const BlockScale s = block_scale(amax);
  std::byte* record = out.data + row * out.stride;
  std::byte* scales = record + out.blocks * 32;
  int packed = 0;
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    const BlockScale of{0.0F, __shfl_sync(kFullMask, s.inverse, i)};
    const int q = quantise_value(x[i], of);
    const int sum = __reduce_add_sync(kFullMask, lane < 16 ? q : q * 65536);
    if (lane == i) packed = sum;
    if (block + i * step < blocks) record[(block + i * step) * 32 + activation_slot(lane)] = static_cast<std::byte>(q);
  }
  if (lane < Count && block + lane * step < blocks) {
    *reinterpret_cast<float*>(scales + (block + lane * step) * 4) = s.d;
    *reinterpret_cast<int32_t*>(scales + (block + lane * step + out.blocks) * 4) = packed;
  }
}
/// Values i to i + 3 (a multiple of 4) of a row; eight neighbouring lanes have a 32-block. Whole warps, of which groups
/// of eight lanes may be outside of the row.
__device__ __forceinline__ void quantise_four(float4 x, const Quantised& out, int64_t row, int i, bool inside) {
  const float values[4] = {x.x, x.y, x.z, x.w};
  uint32_t amax = 0;
#pragma unroll
  for (float v : values) amax = max(amax, __float_as_uint(v) & 0x7fffffffU);
#pragma unroll
  for (int offset = 1; offset < 8; offset *= 2) amax = max(amax, __shfl_xor_sync(kFullMask, amax, offset));
  const BlockScale scale = block_scale(amax);
  uint32_t word = 0;
  int sum = 0;
#pragma unroll
  for (int v = 0; v < 4; ++v) {
    const int q = quantise_value(values[v], scale);
    sum += q;
    word |= static_cast<uint32_t>(q & 255) << (8 * v);
  }
  if (i % 32 >= 16) sum *= 65536;
#pragma unroll
  for (int offset = 1; offset < 8; offset *= 2) sum += __shfl_xor_sync(kFullMask, sum, offset);
  if (!inside) return;
  std::byte* record = out.data + row * out.stride;
  *reinterpret_cast<uint32_t*>(record + i / 32 * 32 + activation_slot(i % 32)) = word;
  if (i % 32 == 0) {
    std::byte* scales = record + out.blocks * 32 + i / 32 * 4;
    *reinterpret_cast<float*>(scales) = scale.d;
    *reinterpret_cast<int32_t*>(scales + out.blocks * 4) = sum;
  }
}
/// The highest lane sum of x^2 in one row in shared memory: squares16 by the 32 lanes of a warp (both halves compute
/// the same).
__device__ __forceinline__ float squares16_shared(const float* x, int count, int lane) {
  float sum = 0.0F;
#pragma unroll 16
  for (int k = lane & 15; k < count; k += 16) sum = __fmaf_rn(x[k], x[k], sum);
  return tree16(sum);
}
__device__ __forceinline__ float norm_factor(float squares, int count, float eps) {
  const float mean = __fdiv_rn(squares, static_cast<float>(count));
  return __fdiv_rn(1.0F, __fsqrt_rn(__fadd_rn(mean, eps)));
}

/// Launches with a programmatic edge to the kernel before it in the stream. An error stays with the runtime as its last
/// error; the backend asks for it once all kernels of a step were launched.
/// cluster: blocks of a cluster, which divides the grid.
template <class... Args>
void launch_clusters(void (*kernel)(Args...), int grid, int block, size_t shared, int cluster, cudaStream_t stream,
                     Args... args) {
  // One division of L1 for all kernels: a change of it would keep neighbours from sharing an SM.
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100) != cudaSuccess) return;
  if (shared > 32 << 10 &&  // static shared memory counts as well
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)) !=
          cudaSuccess)
    return;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid));
  config.blockDim = dim3(static_cast<unsigned>(block));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, args...));
}
template <class... Args>
void launch(void (*kernel)(Args...), int grid, int block, size_t shared, cudaStream_t stream, Args... args) {
  launch_clusters(kernel, grid, block, shared, 1, stream, args...);
}

}  // namespace cohort::cuda
