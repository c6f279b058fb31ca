// Around a visit of the host (part.h). Bound by the link to the host: 8 KB a row go there, 8 KB a route of the host's
// experts come back. One thread looks at the host's word, over the link; the others look at a word of the device.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/part.h"

namespace cohort::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kBetweenLooks = 100;  // ns

__device__ __forceinline__ void say(int32_t* word, int32_t value) {
  asm volatile("st.release.sys.global.s32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ __forceinline__ int32_t hear(const int32_t* word) {
  int32_t value;
  asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
/// The same between blocks.
__device__ __forceinline__ void say_here(int32_t* word, int32_t value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ __forceinline__ int32_t hear_here(const int32_t* word) {
  int32_t value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

/// The entries whose expert is here, in their order, by one block.
__device__ void keep_entries(const PartArgs& args) {
  __shared__ int warps[kThreads / 32];
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 31, warp = tid >> 5;
  const int words = kEntryHeader + args.cap, count = *args.all.count;
  int kept = 0;
  for (int first = 0; first < count; first += kThreads) {
    const int32_t* entry = args.all.entries + int64_t{first + tid} * words;
    const int place = first + tid < count ? args.place[entry[0]] : -1;
    const unsigned mine = __ballot_sync(kFullMask, place >= 0);
    if (lane == 0) warps[warp] = __popc(mine);
    __syncthreads();
    int before = kept;
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) before += warps[w];
      kept += warps[w];
    }
    if (place >= 0) {
      int32_t* to = args.here.entries + int64_t{before + __popc(mine & ((1U << lane) - 1U))} * words;
      const int size = entry[1];
      to[0] = place;
      to[1] = size;
      for (int i = 0; i < size; ++i) to[kEntryHeader + i] = entry[kEntryHeader + i];
    }
    __syncthreads();
  }
  if (tid == 0) *args.here.count = kept;
}

/// Block 0 keeps the entries of the device, the others tell the host; the last of those says so.
__global__ void __launch_bounds__(kThreads) part_kernel(const __grid_constant__ PartArgs args) {
  wait_and_pass_on();
  if (blockIdx.x == 0) {
    if (args.here.entries != nullptr) keep_entries(args);
    return;
  }
  const int rows = args.step.header[kRows];
  const int64_t first = int64_t{blockIdx.x - 1} * kThreads + threadIdx.x, step = int64_t{gridDim.x - 1} * kThreads;
  // Few rows leave no list of experts by route, but entries are always there.
  const int words = kEntryHeader + args.cap;
  for (int64_t i = first; i < int64_t{*args.all.count} * args.cap; i += step) {
    const int32_t* entry = args.all.entries + i / args.cap * words;
    const int at = static_cast<int>(i % args.cap);
    if (at < entry[1]) args.chosen[entry[kEntryHeader + at]] = entry[0];
  }
  const int quads = args.width / 4;
  for (int64_t i = first; i < int64_t{rows} * quads; i += step) {
    const auto* row = reinterpret_cast<const float4*>(args.input.data + i / quads * args.input.stride);
    reinterpret_cast<float4*>(args.told)[i] = row[i % quads];
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  if (atomicAdd(args.arrivals, 1) != static_cast<int>(gridDim.x) - 2) return;
  *args.arrivals = 0;
  say(args.arrived, args.step.header[kTicket]);
}

__global__ void __launch_bounds__(kThreads) bring_kernel(const __grid_constant__ BringArgs args) {
  wait_and_pass_on();
  __shared__ int count;
  if (threadIdx.x == 0) {
    const int32_t ticket = args.step.header[kTicket];
    if (blockIdx.x == 0) {
      while (hear(args.done) != ticket) __nanosleep(kBetweenLooks);
      // Not from a cache, here and below: the layers before used the same memory.
      args.released[1] = __ldcv(args.routes);
      say_here(args.released, ticket);
    } else {
      while (hear_here(args.released) != ticket) __nanosleep(kBetweenLooks);
    }
    count = args.released[1];
  }
  __syncthreads();
  const int quads = args.width / 4;
  for (int r = static_cast<int>(blockIdx.x); r < count; r += static_cast<int>(gridDim.x)) {
    auto* out = reinterpret_cast<float4*>(args.out.data + int64_t{__ldcv(args.routes + 1 + r)} * args.out.stride);
    const auto* from = reinterpret_cast<const float4*>(args.results + int64_t{r} * args.width);
    for (int i = static_cast<int>(threadIdx.x); i < quads; i += kThreads) out[i] = __ldcv(from + i);
  }
}

}  // namespace

void launch_part(const PartArgs& args, int sms, cudaStream_t stream) {
  const int telling = args.step.max_rows * 2 < sms ? args.step.max_rows * 2 : sms;
  launch(&part_kernel, 1 + telling, kThreads, 0, stream, args);
}
void launch_bring(const BringArgs& args, int sms, cudaStream_t stream) {
  launch(&bring_kernel, sms, kThreads, 0, stream, args);
}

}  // namespace cohort::cuda
