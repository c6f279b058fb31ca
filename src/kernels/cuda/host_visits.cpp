#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/host_visits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "base/result.h"

namespace cohort::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// The device needs tens of microseconds between visits with few rows, and milliseconds in a long prompt. As long as it
// is worth while the threads are kept from falling asleep, since waking them takes longer than a visit of few rows;
// then the core is left to others; and the device is asked now and then whether it still runs.
constexpr std::chrono::microseconds kAwake(1000), kBetweenCalls(20);
constexpr std::chrono::milliseconds kBetweenQuestions(20);
constexpr int kSpins = 64;  // between looks at the clock

/// Pieces of one block of memory, each at the start of a cache line.
class Pieces {
 public:
  template <class T>
  void take(T*& out, int64_t count) {
    places_.push_back({reinterpret_cast<void**>(&out), size_});
    size_ += (static_cast<size_t>(count) * sizeof(T) + 127) / 128 * 128;
  }
  size_t bytes() const { return size_; }
  void lay_out(std::byte* memory) const {
    for (const auto& [out, offset] : places_) *out = memory + offset;
  }

 private:
  std::vector<std::pair<void**, size_t>> places_;
  size_t size_ = 0;
};

}  // namespace

std::vector<const op::Experts*> expert_layers(const Program& program) {
  std::vector<const op::Experts*> layers;
  for (const Op& op : program.ops)
    if (const auto* experts = std::get_if<op::Experts>(&op.action)) layers.push_back(experts);
  return layers;
}

Expected<std::unique_ptr<HostVisits>> HostVisits::create(const Program& program,
                                                         std::vector<std::vector<int32_t>> on_host, int32_t max_rows,
                                                         const cpu::HostExperts::Options& options) {
  std::unique_ptr<HostVisits> made(new HostVisits());
  std::vector<cpu::HostExperts::Layer> layers;
  int64_t inputs = 0, outputs = 0, top_k = 1;
  for (const Op& op : program.ops) {
    if (const auto* route = std::get_if<op::Route>(&op.action)) top_k = std::max<int64_t>(top_k, route->top_k);
  }
  for (const op::Experts* experts : expert_layers(program)) {
    inputs = std::max(inputs, experts->gate->cols);
    outputs = std::max(outputs, experts->down->rows);
    layers.push_back({experts, on_host[layers.size()]});
  }
  COHORT_ASSIGN(made->experts_, cpu::HostExperts::create(layers, options));
  made->part_.experts = std::move(on_host);
  const int64_t routes = int64_t{max_rows} * top_k, words = static_cast<int64_t>(layers.size()) * kMeetingWords;
  MeetingPlace& place = made->part_.place;
  Pieces pieces;
  pieces.take(place.arrived, words);
  pieces.take(place.done, words);
  pieces.take(place.chosen, routes);
  pieces.take(place.input, max_rows * inputs);
  pieces.take(place.routes, routes + 1);
  pieces.take(place.results, routes * outputs);
  void* memory = nullptr;
  COHORT_TRY(check(cudaHostAlloc(&memory, pieces.bytes(), cudaHostAllocMapped | cudaHostAllocPortable),
                   "pinned memory for experts in host memory"));
  made->mapped_ = static_cast<std::byte*>(memory);
  pieces.lay_out(made->mapped_);
  std::memset(place.arrived, 0, static_cast<size_t>(words) * sizeof(int32_t));
  std::memset(place.done, 0, static_cast<size_t>(words) * sizeof(int32_t));
  return made;
}

HostVisits::~HostVisits() {
  if (mapped_ != nullptr) cudaFreeHost(mapped_);
}

Expected<void> HostVisits::wait(size_t index, int32_t ticket, cudaStream_t stream) const {
  const std::atomic_ref<int32_t> word(part_.place.arrived[index * kMeetingWords]);
  const auto arrived = [&] { return word.load(std::memory_order_acquire) == ticket; };
  const auto start = Clock::now();
  auto called = start, asked = start;
  for (;;) {
    for (int spin = 0; spin < kSpins; ++spin)
      if (arrived()) return {};
    const auto now = Clock::now();
    if (now - start > kAwake) {
      std::this_thread::yield();
    } else if (now - called > kBetweenCalls) {
      experts_->stay_awake();
      called = now;
    }
    if (now - asked < kBetweenQuestions) continue;
    asked = now;
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaErrorNotReady || arrived()) continue;
    COHORT_TRY(check(state, "running a step"));
    return fail(ErrorCode::internal, "CUDA: a step ended before visit {} of the host", index);
  }
}

Expected<void> HostVisits::serve(size_t index, const Visit& visit, int32_t ticket, int32_t rows, cudaStream_t stream) {
  COHORT_TRY(wait(index, ticket, stream));
  const auto start = Clock::now();
  const MeetingPlace& place = part_.place;
  const std::span<const int32_t> chosen(place.chosen, static_cast<size_t>(rows) * static_cast<size_t>(visit.top_k));
  const int32_t count = experts_->find_routes(visit.layer, chosen, place.routes + 1);
  place.routes[0] = count;
  try {
    experts_->run(visit.layer, std::span<const int32_t>(place.routes + 1, static_cast<size_t>(count)), place.chosen,
                  visit.top_k, place.input, place.results);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::capacity, "out of memory for {} rows of experts in host memory", count);
  }
  std::atomic_ref(place.done[index * kMeetingWords]).store(ticket, std::memory_order_release);
  seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  return {};
}

void HostVisits::let_pass(int32_t ticket) {
  for (size_t index = 0; index < part_.experts.size(); ++index) {
    const size_t word = index * kMeetingWords;
    part_.place.routes[0] = 0;
    std::atomic_ref(part_.place.done[word]).store(ticket, std::memory_order_release);
  }
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
