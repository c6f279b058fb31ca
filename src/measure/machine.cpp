#include "measure/machine.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/memory.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "kernels/cpu/peak.h"

namespace cohort {
namespace {

struct HwlocTopology {
  hwloc_topology_t handle = nullptr;
  ~HwlocTopology() {
    if (handle != nullptr) hwloc_topology_destroy(handle);
  }
};

int count_of(hwloc_topology_t topology, hwloc_obj_type_t type) {
  return std::max(0, hwloc_get_nbobjs_by_type(topology, type));
}

/// Anonymous memory on 2 MB pages where the system gives them.
struct Mapping {
  explicit Mapping(size_t wanted) : size(wanted) {
    void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return;
    madvise(address, size, MADV_HUGEPAGE);
    words = static_cast<uint64_t*>(address);
  }
  ~Mapping() {
    if (words != nullptr) munmap(words, size);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  size_t size;
  uint64_t* words = nullptr;
};

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median_seconds(int repeats, const std::function<void()>& work) {
  work();  // warm-up
  std::vector<double> seconds;
  seconds.reserve(static_cast<size_t>(repeats));
  for (int i = 0; i < repeats; ++i) seconds.push_back(seconds_of(work));
  std::ranges::nth_element(seconds, seconds.begin() + repeats / 2);
  return seconds[static_cast<size_t>(repeats / 2)];
}

uint64_t sum_words(const uint64_t* words, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

/// Seconds that every thread of the team needs for `work`, called once on each.
double on_all(ThreadTeam& team, int repeats, const std::function<void(int)>& work) {
  return median_seconds(repeats,
                        [&] { team.run(team.size(), [&](int64_t index, int) { work(static_cast<int>(index)); }); });
}

// Rounds of a loop that take about 20 ms.
template <class Run>
int64_t rounds_for(Run&& run) {
  int64_t rounds = 1000;
  while (seconds_of([&] { run(rounds); }) < 0.01) rounds *= 2;
  return 2 * rounds;
}

// Results go here so that no loop is removed.
template <class T>
void keep(T value) {
  asm volatile("" : : "r"(&value) : "memory");
}

}  // namespace

Expected<Topology> read_topology() {
  HwlocTopology topology;
  if (hwloc_topology_init(&topology.handle) != 0 || hwloc_topology_load(topology.handle) != 0) {
    return fail(ErrorCode::internal, "the topology of this machine cannot be read (hwloc)");
  }
  Topology result;
  hwloc_topology_t handle = topology.handle;
  result.packages = count_of(handle, HWLOC_OBJ_PACKAGE);
  result.numa_nodes = count_of(handle, HWLOC_OBJ_NUMANODE);
  result.cores = count_of(handle, HWLOC_OBJ_CORE);
  result.threads = count_of(handle, HWLOC_OBJ_PU);
  result.allowed = hwloc_bitmap_weight(hwloc_topology_get_allowed_cpuset(handle));
  if (hwloc_bitmap_t bound = hwloc_bitmap_alloc(); bound != nullptr) {
    if (hwloc_get_cpubind(handle, bound, HWLOC_CPUBIND_PROCESS) == 0) {
      result.allowed = std::min(result.allowed, hwloc_bitmap_weight(bound));
    }
    hwloc_bitmap_free(bound);
  }
  if (hwloc_obj_t package = hwloc_get_obj_by_type(handle, HWLOC_OBJ_PACKAGE, 0); package != nullptr) {
    const char* model = hwloc_obj_get_info_by_name(package, "CPUModel");
    result.processor = model != nullptr ? model : "";
  }
  constexpr std::array kCaches = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE};
  for (size_t i = 0; i < kCaches.size(); ++i) {
    hwloc_obj_t cache = hwloc_get_obj_by_type(handle, kCaches[i], 0);
    if (cache == nullptr) continue;
    result.caches.push_back({static_cast<int>(i) + 1, cache->attr->cache.size, count_of(handle, kCaches[i])});
  }
  result.memory = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  result.available = available_memory();
  return result;
}

namespace {

struct Bandwidth {
  double one = 0, all = 0;  // GB/s
};

/// `one` only when asked for.
Expected<Bandwidth> measure_bandwidth(ThreadTeam& team, int repeats, bool with_one) {
  constexpr size_t kSmallest = size_t{64} << 20, kLargest = size_t{1} << 30;
  const size_t bytes = std::min(kLargest, available_memory() / 4) / kSmallest * kSmallest;
  if (bytes == 0) return fail(ErrorCode::capacity, "measuring needs 256 MiB of free memory");
  const Mapping memory(bytes);
  if (memory.words == nullptr) return fail(ErrorCode::capacity, "cannot map {} bytes to measure bandwidth", bytes);
  const int threads = team.size();
  const size_t each = bytes / sizeof(uint64_t) / static_cast<size_t>(threads);
  const auto part = [&](int thread) { return memory.words + each * static_cast<size_t>(thread); };
  team.run(threads, [&](int64_t t, int) { std::fill_n(part(static_cast<int>(t)), each, uint64_t{1}); });
  const double gigabytes = 1e-9 * static_cast<double>(each * sizeof(uint64_t));
  Bandwidth out;
  out.all = gigabytes * threads / on_all(team, repeats, [&](int thread) { keep(sum_words(part(thread), each)); });
  if (with_one) out.one = gigabytes / median_seconds(repeats, [&] { keep(sum_words(part(0), each)); });
  return out;
}

Expected<void> check_threads(int threads) {
  if (threads >= 1 && threads <= 4096) return {};
  return fail(ErrorCode::invalid_argument, "{} threads: expected 1 to 4096", threads);
}

}  // namespace

Expected<double> read_bandwidth(int threads, int repeats) {
  COHORT_TRY(check_threads(threads));
  ThreadTeam team(threads, /*pin=*/true);
  COHORT_ASSIGN(const Bandwidth bandwidth, measure_bandwidth(team, repeats, false));
  return bandwidth.all;
}

Expected<Probes> probe_machine(int threads, int repeats) {
  COHORT_TRY(check_threads(threads));
  Probes probes;
  probes.threads = threads;
  ThreadTeam team(threads, /*pin=*/true);
  COHORT_ASSIGN(const Bandwidth bandwidth, measure_bandwidth(team, repeats, true));
  probes.read_one = bandwidth.one;
  probes.read_all = bandwidth.all;
  const cpu::PeakKernel fma = cpu::fma_peak_kernel(best_isa());
  const int64_t rounds = rounds_for([&](int64_t n) { keep(fma(n)); });
  const double gflop = 2e-9 * static_cast<double>(cpu::kPeakFmas * rounds);
  probes.fma_one = gflop / median_seconds(repeats, [&] { keep(fma(rounds)); });
  probes.fma_all = gflop * threads / on_all(team, repeats, [&](int) { keep(fma(rounds)); });
  for (Isa isa : available_isas()) {
    const cpu::IntPeak peak = cpu::int8_peak_kernel(isa);
    if (peak.run == nullptr) continue;
    const int64_t n = rounds_for([&](int64_t m) { keep(peak.run(m)); });
    const double tera = 2e-12 * static_cast<double>(peak.multiply_adds * n);
    const double one = median_seconds(repeats, [&] { keep(peak.run(n)); });
    probes.int8.push_back({isa, tera / one, tera * threads / on_all(team, repeats, [&](int) { keep(peak.run(n)); })});
  }
  return probes;
}

nlohmann::ordered_json to_json(const Topology& topology, const Probes& probes) {
  nlohmann::ordered_json json;
  json["processor"] = topology.processor;
  json["packages"] = topology.packages;
  json["numa_nodes"] = topology.numa_nodes;
  json["cores"] = topology.cores;
  json["hardware_threads"] = topology.threads;
  json["allowed_threads"] = topology.allowed;
  for (const CacheLevel& cache : topology.caches) {
    json["caches"].push_back({{"level", cache.level}, {"bytes", cache.bytes}, {"count", cache.count}});
  }
  json["memory_bytes"] = topology.memory;
  json["available_bytes"] = topology.available;
  for (Isa isa : available_isas()) json["instruction_sets"].push_back(isa_name(isa));
  json["used_instruction_set"] = isa_name(best_isa());
  json["measured_threads"] = probes.threads;
  json["read_gbs"] = {{"one_thread", probes.read_one}, {"all_threads", probes.read_all}};
  json["fma_gflops"] = {{"one_thread", probes.fma_one}, {"all_threads", probes.fma_all}};
  for (const Probes::IntPeak& peak : probes.int8) {
    json["int8_tops"][std::string(isa_name(peak.isa))] = {{"one_thread", peak.one}, {"all_threads", peak.all}};
  }
  return json;
}

std::string to_text(const Topology& topology, const Probes& probes) {
  std::string text = fmt::format("processor          {}\n", topology.processor.empty() ? "?" : topology.processor);
  text += fmt::format("cores              {} ({} hardware threads, {} usable), {} package(s), {} NUMA node(s)\n",
                      topology.cores, topology.threads, topology.allowed, topology.packages, topology.numa_nodes);
  for (const CacheLevel& cache : topology.caches) {
    text += fmt::format("L{} cache           {} x {}\n", cache.level, cache.count,
                        format_bytes(static_cast<double>(cache.bytes)));
  }
  text += fmt::format("memory             {}, {} available\n", format_bytes(static_cast<double>(topology.memory)),
                      format_bytes(static_cast<double>(topology.available)));
  text += fmt::format("instruction sets   {}; {} will be used (the fastest; --isa changes it)\n",
                      isa_list(available_isas()), isa_name(best_isa()));
  text += fmt::format("read bandwidth     {:.1f} GB/s on 1 thread, {:.1f} on {}\n", probes.read_one, probes.read_all,
                      probes.threads);
  text += fmt::format("f32 multiply-add   {:.0f} GFLOP/s on 1 thread, {:.0f} on {}\n", probes.fma_one, probes.fma_all,
                      probes.threads);
  for (const Probes::IntPeak& peak : probes.int8) {
    text += fmt::format("int8 {:<13} {:.2f} TOP/s on 1 thread, {:.2f} on {}\n", isa_name(peak.isa), peak.one, peak.all,
                        probes.threads);
  }
  return text;
}

}  // namespace cohort
