// The router of few rows with its norm, softmax and top k, and the grouping of a step's routes by expert. Weights as
// float_linear.cu.
#include "kernels/cuda/dot16.cuh"
#include "kernels/cuda/select.cuh"

namespace cohort::cuda {
namespace {

constexpr int kRouterRows = 8;  // of the router of few rows
constexpr int kRouterThreads = kRouterRows * 16;
// Of select_kernel: with more rows than one block takes, several blocks of half the threads.
constexpr int kSelectThreads = 512, kSelectMost = 1024;
/// Rows whose choice stays in shared memory where a single block has all rows.
COHORT_HD constexpr int local_rows(int threads) {
  return threads == kSelectMost ? kSelectMost / 32 : kRouterRows;
}
constexpr int kKnownRoutes = 1024;  // of few blocks' routes the experts stay in shared memory once they were read
constexpr int kPlacingBlocks = 8;   // of select_kernel; from more on routes are placed by all of them

/// Few rows: a block has all rows and one expert at a time. Every block normalises all rows for itself; the blocks
/// share the work of writing them out.
__global__ void __launch_bounds__(kRouterThreads) router_kernel(const __grid_constant__ RouteArgs args) {
  extern __shared__ __align__(128) float buffer[];
  __shared__ uint64_t rows_here, weights_here;
  __shared__ float factors[kRouterRows];
  stamp(args.step, 0);
  const int k = args.k;
  float* x = buffer;
  float* w = x + kRouterRows * (k + kRowGap);
  float* norm_weight = w + k;
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 15, row = tid >> 4;
  if (tid == 0) {
    barrier_init(&rows_here, 1);
    barrier_init(&weights_here, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    const auto bytes = static_cast<uint32_t>(k * 4);
    barrier_expect(&weights_here, args.norm_weight != nullptr ? 2 * bytes : bytes);
    bulk_copy(w, args.weights + int64_t{blockIdx.x} * k, bytes, &weights_here);
    if (args.norm_weight != nullptr) bulk_copy(norm_weight, args.norm_weight, bytes, &weights_here);
  }
  __syncthreads();
  const int rows = args.step.header[kRows];
  stamp(args.step, 1);
  wait_and_pass_on();
  stamp(args.step, 2);
  if (tid < 32) copy_rows(x, args.input, 0, rows, k, &rows_here);
  barrier_wait(&weights_here, 0);
  stamp(args.step, 3);
  barrier_wait(&rows_here, 0);
  stamp(args.step, 4);
  const bool active = row < rows;
  const float* my_x = x + row * (k + kRowGap) + lane;
  if (args.norm) {
    float sum = 0.0F;
    if (active) {
#pragma unroll 16
      for (int i = 0; i < k; i += 16) sum = __fmaf_rn(my_x[i], my_x[i], sum);
    }
    const float factor = norm_factor(tree16(sum), k, args.eps);
    if (active && lane == 0) factors[row] = factor;
    __syncthreads();
    stamp(args.step, 5);
    for (int r = 0; r < rows; ++r) {
      const float by = factors[r];
      float* row_x = x + r * (k + kRowGap);
      const bool weighted = args.norm_weight != nullptr;
#pragma unroll 4
      for (int i = tid * 4; i < k; i += kRouterThreads * 4) {
        float4 y = *reinterpret_cast<const float4*>(row_x + i);
        y = make_float4(__fmul_rn(y.x, by), __fmul_rn(y.y, by), __fmul_rn(y.z, by), __fmul_rn(y.w, by));
        if (weighted) {
          const float4 v = *reinterpret_cast<const float4*>(norm_weight + i);
          y = make_float4(__fmul_rn(y.x, v.x), __fmul_rn(y.y, v.y), __fmul_rn(y.z, v.z), __fmul_rn(y.w, v.w));
        }
        *reinterpret_cast<float4*>(row_x + i) = y;
      }
    }
    __syncthreads();
  }
  stamp(args.step, 6);
  uint32_t parity = 1;
  for (int expert = static_cast<int>(blockIdx.x);;) {
    float sum = 0.0F;
    if (active) {
#pragma unroll 8
      for (int i = 0; i < k; i += 64) {
        const float4 weight = *reinterpret_cast<const float4*>(w + i + lane * 4);
        sum = __fmaf_rn(my_x[i], weight.x, sum);
        sum = __fmaf_rn(my_x[i + 16], weight.y, sum);
        sum = __fmaf_rn(my_x[i + 32], weight.z, sum);
        sum = __fmaf_rn(my_x[i + 48], weight.w, sum);
      }
    }
    sum = tree16(sum);
    if (active && lane == 0)
      args.logits[int64_t{row} * args.experts + expert] =
          args.bias != nullptr ? __fadd_rn(sum, args.bias[expert]) : sum;
    expert += static_cast<int>(gridDim.x);
    if (expert >= args.experts) break;
    __syncthreads();
    if (tid == 0) {
      barrier_expect(&weights_here, static_cast<uint32_t>(k * 4));
      bulk_copy(w, args.weights + int64_t{expert} * k, static_cast<uint32_t>(k * 4), &weights_here);
    }
    barrier_wait(&weights_here, parity);
    parity ^= 1;
  }
  stamp(args.step, 7);
  if (!args.norm || (args.quantised.data == nullptr && args.norm_out.data == nullptr)) return;
  const int blocks = k / 32, in_block = tid & 31;
  const int step = static_cast<int>(gridDim.x) * (kRouterThreads / 32);
  for (int job = static_cast<int>(blockIdx.x) * (kRouterThreads / 32) + (tid >> 5); job < rows * blocks; job += step) {
    const int r = job / blocks, b = job % blocks, i = b * 32 + in_block;
    const float y = x[r * (k + kRowGap) + i];
    if (args.norm_out.data != nullptr) args.norm_out.data[int64_t{r} * args.norm_out.stride + i] = y;
    if (args.quantised.data != nullptr) quantise_block(y, in_block, args.quantised, r, b);
  }
  stamp(args.step, 8);
}

/// Softmax over a row's logits and its top k, by one warp; K = experts / 32, rounded up.
template <int K>
__device__ void select_experts(const RouteArgs& args, int row, int* chosen_experts) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const float* logits = args.logits + int64_t{row} * args.experts;
  float x[K];
#pragma unroll
  for (int i = 0; i < K; ++i) {
    const int e = lane + i * 32;
    x[i] = e < args.experts ? __ldcg(logits + e) : __int_as_float(0xff800000);
  }
  const Choice choice = choose_experts<K>(x, args.experts, args.top_k, args.renormalise);
  if (lane < args.top_k) {
    const int expert = choice.expert;
    float w = choice.weight;
    if (args.expert_scale != nullptr) w = __fmul_rn(w, args.expert_scale[expert]);
    const int64_t at = int64_t{row} * args.top_k + lane;
    if (chosen_experts != nullptr) {
      chosen_experts[at] = expert;
    } else {
      args.group.slot_expert[at] = expert;
    }
    args.group.slot_weight[at] = w;
  }
}

/// Routes of a block whose warps have had one row after another.
template <int Threads, class Take>
__device__ __forceinline__ void each_own_route(const RouteArgs& args, int rows, const Take& take) {
  constexpr int kWarps = Threads / 32;
  const int lane = static_cast<int>(threadIdx.x & 31), warp = static_cast<int>(threadIdx.x >> 5);
  if (lane >= args.top_k) return;
  for (int row = static_cast<int>(blockIdx.x) * kWarps + warp; row < rows; row += static_cast<int>(gridDim.x) * kWarps)
    take(int64_t{row} * args.top_k + lane);
}
/// Every route of the block gets its place among those of its expert: one atomic an expert and block.
/// counts: [experts * 2] ints of shared memory.
template <int Threads>
__device__ void take_places(const RouteArgs& args, int rows, int* counts) {
  const int tid = static_cast<int>(threadIdx.x);
  int* base = counts + args.experts;
  for (int e = tid; e < args.experts; e += Threads) counts[e] = 0;
  __syncthreads();
  each_own_route<Threads>(
      args, rows, [&](int64_t at) { args.group.places[at] = atomicAdd(&counts[args.group.slot_expert[at]], 1); });
  __syncthreads();
  for (int e = tid; e < args.experts; e += Threads)
    base[e] = counts[e] > 0 ? atomicAdd(&args.group.counts[e], counts[e]) : 0;
  __syncthreads();
  each_own_route<Threads>(args, rows, [&](int64_t at) { args.group.places[at] += base[args.group.slot_expert[at]]; });
}

/// Cuts the step's routes, sorted by expert, into entries; the order inside an entry is free, since each route is
/// computed on its own. chosen: the routes' experts, null: in device memory. placed: every route has its place
/// (take_places). counts: [experts * 2 + kKnownRoutes] ints of shared memory.
template <int Threads>
__device__ void group_routes(const RouteArgs& args, int rows, const int* chosen, bool placed, int* counts) {
  const int tid = static_cast<int>(threadIdx.x);
  const int routes = rows * args.top_k;
  const int words = kEntryHeader + args.cap;
  int* first_entry = counts + args.experts;
  // take(route, expert, place) for all routes of this thread; many loads in flight at once.
  const auto each_route = [&](auto&& take) {
    constexpr int kAhead = 16;
    for (int first = 0; first < routes; first += kAhead * Threads) {
      int expert[kAhead], place[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        if (first + u * Threads >= routes) break;
        const int i = min(first + u * Threads + tid, routes - 1);
        expert[u] = chosen != nullptr ? chosen[i] : __ldcg(args.group.slot_expert + i);
        place[u] = placed ? __ldcg(args.group.places + i) : 0;
      }
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int i = first + u * Threads + tid;
        if (first + u * Threads >= routes) break;
        if (i < routes) take(i, expert[u], place[u]);
      }
    }
  };
  for (int e = tid; e < args.experts; e += Threads) {
    counts[e] = placed ? __ldcg(args.group.counts + e) : 0;
    if (placed) args.group.counts[e] = 0;
  }
  __syncthreads();
  if (!placed) {
    int* known = counts + args.experts * 2;
    const bool keep = chosen == nullptr && routes <= kKnownRoutes;
    each_route([&](int i, int e, int) {
      atomicAdd(&counts[e], 1);
      if (keep) known[i] = e;
    });
    if (keep) chosen = known;
    __syncthreads();
  }
  if (tid < 32) {
    // Prefix sums of entries and touched experts, 32 experts at a time.
    int entries = 0, touched = 0;
    for (int first = 0; first < args.experts; first += 32) {
      const int e = first + tid;
      const int n = e < args.experts ? counts[e] : 0;
      const int pieces = (n + args.cap - 1) / args.cap;
      int sum = pieces;
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const int other = __shfl_up_sync(kFullMask, sum, offset);
        if (tid >= offset) sum += other;
      }
      if (e < args.experts) {
        first_entry[e] = entries + sum - pieces;
        counts[e] = 0;  // becomes the next place
        for (int i = 0; i < pieces; ++i) {
          int32_t* record = args.group.entries + int64_t{first_entry[e] + i} * words;
          record[0] = e;
          record[1] = min(args.cap, n - i * args.cap);
        }
      }
      entries += __shfl_sync(kFullMask, sum, 31);
      touched += __popc(__ballot_sync(kFullMask, n > 0));
    }
    if (tid == 0) {
      *args.group.count = entries;
      *args.group.distinct += touched;
    }
  }
  __syncthreads();
  each_route([&](int i, int e, int place) {
    if (!placed) place = atomicAdd(&counts[e], 1);
    args.group.entries[int64_t{first_entry[e] + place / args.cap} * words + kEntryHeader + place % args.cap] = i;
  });
}

/// The same for at most 64 routes of at most 8 rows, by one warp: an entry is the place of an expert's first route
/// among the first routes, so it needs no counters.
__device__ void group_few_routes(const RouteArgs& args, int routes, const int* chosen) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int words = kEntryHeader + args.cap;
  int mine[2], first[2], rank[2], size[2];
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    mine[u] = lane + u * 32 < routes ? chosen[lane + u * 32] : -1;
    first[u] = lane + u * 32;
    rank[u] = size[u] = 0;
  }
#pragma unroll 8
  for (int j = 0; j < routes; ++j) {
    const int other = chosen[j];
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      if (other != mine[u]) continue;
      first[u] = min(first[u], j);
      rank[u] += j < lane + u * 32 ? 1 : 0;
      ++size[u];
    }
  }
  const unsigned low = __ballot_sync(kFullMask, mine[0] >= 0 && first[0] == lane);
  const unsigned high = __ballot_sync(kFullMask, mine[1] >= 0 && first[1] == lane + 32);
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    if (mine[u] < 0) continue;
    const int f = first[u];
    const int entry = f < 32 ? __popc(low & ((1U << f) - 1U)) : __popc(low) + __popc(high & ((1U << (f - 32)) - 1U));
    int32_t* record = args.group.entries + int64_t{entry} * words;
    record[kEntryHeader + rank[u]] = lane + u * 32;
    if (rank[u] == 0) {
      record[0] = mine[u];
      record[1] = size[u];
    }
  }
  if (lane == 0) {
    const int entries = __popc(low) + __popc(high);
    *args.group.count = entries;
    *args.group.distinct += entries;
  }
}

/// A warp a row; the last block groups.
template <int K, int Threads>
__global__ void __launch_bounds__(Threads) select_kernel(const __grid_constant__ RouteArgs args) {
  extern __shared__ __align__(128) int counts[];  // [experts * 2 + kKnownRoutes]
  __shared__ int last, chosen[local_rows(Threads) * kMaxTopK];
  stamp(args.step, 0, 1);
  const int tid = static_cast<int>(threadIdx.x), warp = tid >> 5;
  const int rows = args.step.header[kRows];
  stamp(args.step, 1, 1);
  wait_and_pass_on();
  stamp(args.step, 2, 1);
  int* local = rows <= local_rows(Threads) && gridDim.x == 1 ? chosen : nullptr;
  constexpr int kWarps = Threads / 32;
  // Of few blocks neighbouring rows are different ones', whose warps so have the SM to fewer; of more they stay
  // together, for the entries' sake (prefill took 9 us a layer more).
  const bool placed = gridDim.x > kPlacingBlocks;
  const int grid = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  for (int row = placed ? block * kWarps + warp : warp * grid + block; row < rows; row += grid * kWarps)
    select_experts<K>(args, row, local);
  stamp(args.step, 3, 1);
  if (local != nullptr && rows == 1) {  // every route is an entry
    if (tid >= 32) return;
    __syncwarp();
    if (tid < args.top_k) {
      int32_t* record = args.group.entries + tid * (kEntryHeader + args.cap);
      record[0] = chosen[tid];
      record[1] = 1;
      record[kEntryHeader] = tid;
    }
    if (tid == 0) {
      *args.group.count = args.top_k;
      *args.group.distinct += args.top_k;
    }
    stamp(args.step, 4, 1);
    return;
  }
  if (placed) take_places<Threads>(args, rows, counts);
  if (gridDim.x > 1) {
    __syncthreads();
    if (tid == 0) {  // one thread's fence serves the block: the barrier is before it
      fence_device();
      last = atomicAdd(args.group.counter, 1) == static_cast<int>(gridDim.x) - 1;
      fence_device();
    }
    __syncthreads();
    if (!last) return;
    if (tid == 0) *args.group.counter = 0;
  } else {
    __syncthreads();
  }
  // At most 8 routes an expert, so an entry each. (Not of more rows, however few their routes are.)
  if (local != nullptr && rows <= kEntryColumns && rows * args.top_k <= 64) {
    if (tid < 32) group_few_routes(args, rows * args.top_k, local);
    stamp(args.step, 4, 1);
    return;
  }
  group_routes<Threads>(args, rows, local, placed, counts);
}

}  // namespace

void launch_router(const RouteArgs& args, int sms, cudaStream_t stream) {
  const size_t bytes = sizeof(float) * static_cast<size_t>(args.k * (kRouterRows + 2) + kRouterRows * kRowGap);
  launch(&router_kernel, args.experts < sms ? args.experts : sms, kRouterThreads, bytes, stream, args);
}

void launch_select(const RouteArgs& args, int sms, cudaStream_t stream) {
  const size_t bytes = sizeof(int) * (static_cast<size_t>(args.experts) * 2 + kKnownRoutes);
  const auto start = [&](auto* kernel, int threads) {
    const int warps = threads / 32, wanted = (args.step.max_rows + warps - 1) / warps;
    launch(kernel, wanted < sms ? wanted : sms, threads, bytes, stream, args);
  };
  if (args.experts > 128) {
    start(&select_kernel<kMaxExperts / 32, kSelectThreads>, kSelectThreads);
  } else if (args.step.max_rows > kRouterRows && args.step.max_rows <= local_rows(kSelectMost)) {
    start(&select_kernel<4, kSelectMost>, kSelectMost);
  } else {
    start(&select_kernel<4, kSelectThreads>, kSelectThreads);
  }
}

}  // namespace cohort::cuda
