#include "kernels/cuda/backend.h"

#include "base/result.h"

#ifndef COHORT_HAS_CUDA

namespace cohort {

Expected<std::unique_ptr<CudaBackend>> make_cuda_backend(const Program&, const CudaOptions&) {
  return fail(ErrorCode::unsupported, "this binary was built without CUDA; use --device cpu");
}
Expected<std::string> describe_cuda_device(int) {
  return fail(ErrorCode::not_found, "this binary was built without CUDA; use --device cpu");
}
Expected<DeviceNeeds> cuda_memory_needs(const Program&, int32_t, int32_t, int32_t) {
  return fail(ErrorCode::unsupported, "this binary was built without CUDA; use --device cpu");
}

}  // namespace cohort

#else

#include <algorithm>
#include <bit>
#include <chrono>

#include "base/memory.h"
#include "kernels/cuda/cache_memory.h"
#include "kernels/cuda/canvases.h"
#include "kernels/cuda/device_times.h"
#include "kernels/cuda/draw.h"
#include "kernels/cuda/host_visits.h"
#include "kernels/cuda/needs.h"
#include "kernels/cuda/open_device.h"
#include "kernels/cuda/stamps.h"
#include "kernels/cuda/step_writer.h"
#include "kv/cache.h"

namespace cohort {
namespace cuda {
namespace {

// Decode steps of so few units of attention spread the heads over blocks: with 24 streams of one short split each it is
// as fast, with 9 a tenth of the step faster; with 27 units of 9 streams the groups of heads are.
constexpr int32_t kFewUnits = 24;
// A single row of so many splits has a block of a cluster for each (launch_attention_few).
constexpr int32_t kClusterUnits = 4;

// Of what is free without --device-memory: left for the runtime, captured graphs and kernels' stacks.
constexpr size_t kDeviceReserve = size_t{512} << 20;
// The device rounds an allocation up to pages of this size.
constexpr size_t kDevicePage = size_t{2} << 20;

class Backend final : public CudaBackend {
 public:
  Backend(const Program& program, const CudaOptions& options)
      : program_(program),
        options_(options),
        limits_(limits_of(program, options.max_rows, options.canvas, options.streams)) {}

  ~Backend() override {
    if (visits_ != nullptr) visits_->let_pass(ticket_);
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    drop_graphs();
    if (host_ != nullptr) cudaFreeHost(host_);
    if (results_ != nullptr) cudaFreeHost(results_);
    if (mapped_rules_ != nullptr) cudaFreeHost(mapped_rules_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  Expected<void> open() {
    COHORT_ASSIGN(const cudaDeviceProp properties, open_device(options_.device));
    name_ = properties.name;
    sms_ = properties.multiProcessorCount;
    COHORT_TRY(check(cudaSetDevice(options_.device), "selecting the device"));
    COHORT_TRY(check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"));
    COHORT_TRY(place());
    const double share = count_bytes();
    if (placement_.in_host_memory > 0) COHORT_TRY(open_visits(progress_of(0, share)));
    COHORT_ASSIGN(const StepMemory step, allocate_step(memory_, limits_));
    step_ = step.step;
    best_ = step.best;
    argmax_counters_ = step.counters;
    COHORT_TRY(allocate_mapped());
    COHORT_ASSIGN(auto uploader,
                  Uploader::create(memory_, options_.threads, device_weights_, progress_of(share, 1 - share)));
    COHORT_ASSIGN(lowered_, lower(program_, limits_, cache_.memory(), memory_, *uploader, sms_,
                                  visits_ != nullptr ? visits_->part() : HostPart{}));
    writer_ = StepWriter(limits_, lowered_.windows);
    COHORT_TRY(canvases_.open(lowered_.canvases, limits_));
    COHORT_TRY(allocate_stamps(memory_, lowered_.launches.size(), step_));
    return uploader->finish();
  }

  std::string description() const override {
    std::string text = fmt::format("cuda:{} {}, {:.2f} GB on the device", options_.device, name_,
                                   static_cast<double>(device_bytes()) / 1e9);
    if (visits_ == nullptr) return text;
    const int64_t all = placement_.on_device + placement_.in_host_memory;
    return text + fmt::format("; {} of {} experts on it, by {}, {} with {:.2f} GB in host memory (cpu {})",
                              placement_.on_device, all,
                              options_.expert_counts.empty() ? "layers in order" : options_.counts_from,
                              placement_.in_host_memory, static_cast<double>(visits_->experts().bytes()) / 1e9,
                              visits_->experts().description());
  }

  Expected<void> allocate_cache(TensorType type, int32_t pages) override {
    drop_graphs();
    COHORT_TRY(cache_.allocate(program_.cache_layers, type, pages, stream_));
    if (lowered_.flow != nullptr) COHORT_TRY(set_flow_cache(*lowered_.flow, cache_.memory()));
    return {};
  }
  void copy_page(int32_t from, int32_t to) override { cache_.copy_page(program_.cache_layers, from, to, stream_); }

  Expected<StepStats> run(const Batch& batch, std::span<float> logits) override {
    return run_all(batch, Ending::logits, [&](int32_t sampled, int32_t count) {
      return copy_logits(0, count, logits.subspan(static_cast<size_t>(sampled) * vocabulary()));
    });
  }
  Expected<StepStats> run_greedy(const Batch& batch, std::span<int32_t> tokens) override {
    return run_all(batch, Ending::greedy, [&](int32_t sampled, int32_t count) -> Expected<void> {
      COHORT_TRY(check(cudaStreamSynchronize(stream_), "running a step"));
      std::copy_n(results_, count, tokens.begin() + sampled);
      return {};
    });
  }

  int32_t top_logits() const override { return top_fits(program_.vocabulary) ? kTopLogits : 0; }
  Expected<StepStats> run_top(const Batch& batch, std::span<const DrawRule> rules, std::span<TopLogit> top,
                              std::span<Draw> draws) override {
    earlier_logits_.clear();
    const auto total = static_cast<int32_t>(batch.sampled_rows.size());
    rules_ = draw_fits(program_.vocabulary) ? rules : std::span<const DrawRule>();
    return run_all(
        batch, rules_.empty() ? Ending::top : Ending::draw, [&](int32_t sampled, int32_t count) -> Expected<void> {
          COHORT_TRY(check(cudaStreamSynchronize(stream_), "running a step"));
          if (!rules_.empty()) std::copy_n(mapped_draws_, count, draws.begin() + sampled);
          for (int32_t i = 0; i < count * kTopLogits; ++i)
            top[static_cast<size_t>(sampled) * kTopLogits + static_cast<size_t>(i)] = {top_ids()[i], top_values()[i]};
          // The next submission of this batch overwrites these.
          first_kept_ = sampled;
          if (sampled + count == total) return {};
          earlier_logits_.resize(static_cast<size_t>(sampled + count) * vocabulary());
          return copy_logits(0, count, std::span(earlier_logits_).subspan(static_cast<size_t>(sampled) * vocabulary()));
        });
  }
  Expected<void> read_logits(int32_t row, std::span<float> logits) override {
    if (row < first_kept_) {
      const auto kept = std::span(earlier_logits_).subspan(static_cast<size_t>(row) * vocabulary(), vocabulary());
      std::ranges::copy(kept, logits.begin());
      return {};
    }
    COHORT_TRY(check(cudaSetDevice(options_.device), "selecting the device"));  // any thread may ask
    return check(cudaMemcpy(logits.data(), lowered_.logits + static_cast<size_t>(row - first_kept_) * vocabulary(),
                            vocabulary() * sizeof(float), cudaMemcpyDeviceToHost),
                 "reading logits");
  }
  int32_t canvas_places() const override { return canvases_.any() ? limits_.places : 0; }
  Expected<StepStats> run_canvases(const Batch& batch, std::span<const CanvasPlace> places,
                                   std::span<const CanvasRule> rules, std::span<CanvasReading> readings) override {
    orders_ = {places, rules};
    return run_all(batch, Ending::canvas, [&](int32_t sampled, int32_t count) -> Expected<void> {
      COHORT_TRY(check(cudaStreamSynchronize(stream_), "running a step"));
      std::copy_n(canvases_.readings(), count, readings.begin() + sampled);
      return {};
    });
  }
  size_t free_cache_bytes() const override {
    const auto memory = memory_of_device();
    if (!memory) return 0;
    if (!cache_is_reserved()) return memory->free;
    const size_t used = device_bytes();
    return std::min(memory->free, room_ > used ? room_ - used : 0);
  }
  bool cache_is_reserved() const override { return visits_ != nullptr || options_.memory_limit > 0; }
  ThreadTeam* team() override { return visits_ != nullptr ? &visits_->team() : nullptr; }
  double read_bandwidth() override {
    if (cudaSetDevice(options_.device) != cudaSuccess) return 0;
    for (size_t bytes = size_t{2} << 30; bytes >= size_t{256} << 20; bytes /= 2) {
      void* data = nullptr;
      if (cudaMalloc(&data, bytes) != cudaSuccess) {
        cudaGetLastError();
        continue;
      }
      const double rate =
          read_rate(static_cast<std::byte*>(data), bytes, argmax_counters_ + limits_.sampled, sms_, stream_);
      cudaFree(data);
      return rate;
    }
    return 0;
  }
  Expected<std::vector<KernelTime>> profile(int32_t rows) override {
    Launcher launcher = last_;
    launcher.variant = variant_of(rows);
    launcher.step.max_rows = most_rows(launcher.variant);
    COHORT_ASSIGN(std::vector<KernelTime> times, time_kinds(launches_of(last_.flow), launcher));
    if (visits_ != nullptr)
      times.push_back({"experts in host memory", static_cast<int64_t>(lowered_.visits.size()), host_seconds_});
    return times;
  }
  Expected<std::vector<BlockStamps>> stamps() override { return read_stamps(step_, launches_of(last_.flow)); }
  int64_t submissions() const override { return submissions_; }
  int64_t kernels() const override { return kernels_; }
  size_t device_bytes() const override { return memory_.bytes() + cache_.bytes(); }

 private:
  /// Says where experts will be, before anything large is allocated.
  Expected<void> place() {
    COHORT_ASSIGN(ProgramNeeds needs, needs_of(program_, limits_));
    COHORT_ASSIGN(const MemoryOfDevice memory, memory_of_device());
    const size_t reserve = kDeviceReserve + needs.allocations * kDevicePage;
    room_ = memory.free > reserve ? memory.free - reserve : 0;
    if (options_.memory_limit > 0) {
      if (options_.memory_limit > memory.free) {
        return fail(ErrorCode::capacity, "--device-memory allows {}, but only {} of the device's {} are free",
                    format_bytes(static_cast<double>(options_.memory_limit)),
                    format_bytes(static_cast<double>(memory.free)), format_bytes(static_cast<double>(memory.total)));
      }
      room_ = options_.memory_limit;
    }
    needs.memory.cache_least = options_.cache_least;
    needs.memory.cache_wanted = options_.cache_wanted;
    for (size_t l = 0; l < options_.expert_counts.size(); ++l)
      needs.memory.layers[l].counts = options_.expert_counts[l];
    COHORT_TRY(check_canvas_room(needs.memory, limits_, program_.vocabulary, room_));
    COHORT_ASSIGN(placement_, place_experts(needs.memory, room_));
    return {};
  }

  /// Sums up what the weights take in the model's file: of one step, on the device. Returns the share in host memory.
  double count_bytes() {
    CostQuery one_expert;
    one_expert.distinct_experts = 1;
    double on_host = 0;
    size_t layer = 0;
    for (const Op& op : program_.ops) {
      const double bytes = cost_of(program_, op, one_expert).weight_bytes;
      if (const auto* experts = std::get_if<op::Experts>(&op.action)) {
        const auto away = static_cast<double>(placement_.on_host[layer++].size());
        expert_bytes_ = bytes;  // of one expert of one layer
        on_host += bytes * away;
        device_weights_ += bytes * (static_cast<double>(experts->gate->experts) - away);
      } else if (!std::holds_alternative<op::Embed>(op.action)) {
        weight_bytes_ += bytes;  // read by every step
        device_weights_ += bytes;
      }
    }
    return on_host / std::max(on_host + device_weights_, 1.0);
  }
  /// The progress of a part of loading.
  std::function<void(double)> progress_of(double before, double share) const {
    if (!options_.progress) return {};
    return [this, before, share](double done) { options_.progress(before + share * done); };
  }
  Expected<void> open_visits(const std::function<void(double)>& progress) {
    cpu::HostExperts::Options host = options_.host;
    host.threads = options_.threads;
    if (progress) {
      host.progress = [&](uint64_t done, uint64_t total) {
        progress(static_cast<double>(done) / static_cast<double>(std::max<uint64_t>(total, 1)));
      };
    }
    COHORT_ASSIGN(visits_, HostVisits::create(program_, placement_.on_host, limits_.rows, host));
    return {};
  }

  /// What follows the logits in a step: nothing, the highest one, the kTopLogits highest ones of each row, those and a
  /// draw from all, or the reading of canvases.
  enum class Ending { logits, greedy, top, draw, canvas };
  static constexpr int kEndings = 5;

  size_t vocabulary() const { return static_cast<size_t>(program_.vocabulary); }
  int32_t* top_ids() const { return results_ + limits_.sampled + 1; }
  float* top_values() const { return reinterpret_cast<float*>(top_ids() + limits_.sampled * kTopLogits); }

  Expected<void> copy_logits(int32_t first, int32_t count, std::span<float> out) {
    if (count > 0) {
      COHORT_TRY(check(
          cudaMemcpyAsync(out.data(), lowered_.logits + static_cast<size_t>(first) * vocabulary(),
                          static_cast<size_t>(count) * vocabulary() * sizeof(float), cudaMemcpyDeviceToHost, stream_),
          "reading logits"));
    }
    return check(cudaStreamSynchronize(stream_), "running a step");
  }

  struct Graph {
    cudaGraphExec_t exec = nullptr;
    int64_t kernels = 0;
  };

  void drop_graphs() {
    for (auto& by_kind : graphs_) {
      for (Graph& graph : by_kind) {
        if (graph.exec != nullptr) cudaGraphExecDestroy(graph.exec);
        graph = {};
      }
    }
  }

  Expected<void> allocate_mapped() {
    void* host = nullptr;
    const auto words = static_cast<size_t>(StepWriter::most_words(limits_));
    COHORT_TRY(check(cudaHostAlloc(&host, words * 4, cudaHostAllocMapped), "pinned memory"));
    host_ = static_cast<int32_t*>(host);
    const int64_t result_words = limits_.sampled + 1 + 2 * int64_t{limits_.sampled} * kTopLogits;
    COHORT_TRY(
        check(cudaHostAlloc(&host, static_cast<size_t>(result_words) * 4, cudaHostAllocMapped), "pinned memory"));
    results_ = static_cast<int32_t*>(host);
    const auto sampled = static_cast<size_t>(limits_.sampled);
    COHORT_TRY(
        check(cudaHostAlloc(&host, sampled * (sizeof(DrawRule) + sizeof(Draw)), cudaHostAllocMapped), "pinned memory"));
    mapped_rules_ = static_cast<DrawRule*>(host);
    mapped_draws_ = reinterpret_cast<Draw*>(mapped_rules_ + sampled);
    return {};
  }

  /// Whether launch_attention_group can run this program's attention.
  bool can_group() const {
    const CacheType type = cache_.memory().type;
    return lowered_.attention_groups && (type == CacheType::f16 || type == CacheType::bf16);
  }
  static Variant variant_of(int32_t rows) {
    return rows <= kSmallRows    ? Variant::small
           : rows <= kMiddleRows ? Variant::middle
           : rows <= kWideRows   ? Variant::wide
                                 : Variant::tiles;
  }
  int32_t most_rows(Variant variant) const {
    switch (variant) {
      case Variant::small:
        return kSmallRows;
      case Variant::middle:
        return kMiddleRows;
      case Variant::wide:
        return kWideRows;
      case Variant::tiles:
        break;
    }
    return limits_.rows;
  }

  /// The kernel for all layers of a decode step of `rows` rows, if there is one.
  FlowRows flow_of(bool decode, int32_t rows) const {
    const int32_t* positions = host_ + kHeaderWords + rows;
    if (!decode || rows > kFlowRows || lowered_.flow == nullptr || !lowered_.flow->ready ||
        *std::max_element(positions, positions + rows) >= flow_positions(rows))
      return FlowRows::none;
    // Measured: with K formats the kernels of the phases are as fast at twelve rows, and faster above.
    if (lowered_.flow->formats == FlowFormats::k && rows > 12) return FlowRows::none;
    return rows == 1   ? FlowRows::one
           : rows == 2 ? FlowRows::two
           : rows <= 4 ? FlowRows::four
           : rows <= 8 ? FlowRows::eight
                       : FlowRows::sixteen;
  }
  /// The launches of a step: all, or with one for all layers.
  std::vector<const Launch*> launches_of(FlowRows flow) const {
    std::vector<const Launch*> list;
    const FlowPlan* plan = flow != FlowRows::none ? lowered_.flow.get() : nullptr;
    for (size_t i = 0; i < lowered_.launches.size(); ++i) {
      if (plan != nullptr && i == plan->first) list.push_back(&plan->launch);
      if (plan == nullptr || i < plan->first || i >= plan->last) list.push_back(&lowered_.launches[i]);
    }
    return list;
  }

  /// serve(visit): before the launch that waits for that visit of the host.
  template <class Serve>
  Expected<void> launch_all(Launcher launcher, Ending ending, const Serve& serve) {
    launch_begin({host_, launcher.step, lowered_.distinct}, stream_);
    if (canvases_.any()) launch_begin_canvas(canvases_.begin_args(launcher.step), stream_);
    size_t launched = 0, visit = 0;
    for (const Launch* launch : launches_of(launcher.flow)) {
      if (visit < lowered_.visits.size() && lowered_.visits[visit].resume == launched) COHORT_TRY(serve(visit++));
      launch->run(launcher);
      next_launch(launcher.step);
      ++launched;
    }
    if (ending == Ending::greedy) {
      ArgmaxArgs args;
      args.step = launcher.step;
      args.logits = lowered_.logits;
      args.vocabulary = program_.vocabulary;
      args.best = best_;
      args.counters = argmax_counters_;
      args.out = results_;
      launch_argmax(args, sms_, stream_);
    } else if (ending == Ending::top || ending == Ending::draw) {
      launch_top({launcher.step, lowered_.logits, program_.vocabulary, top_ids(), top_values()}, sms_, stream_);
    }
    if (ending == Ending::draw) {
      launch_draw({launcher.step, lowered_.logits, program_.vocabulary, mapped_rules_, mapped_draws_}, sms_, stream_);
    }
    if (ending == Ending::canvas)
      launch_read_canvas(canvases_.read_args(launcher.step, lowered_.logits, program_.vocabulary), sms_, stream_);
    if (lowered_.distinct != nullptr)
      cudaMemcpyAsync(results_ + limits_.sampled, lowered_.distinct, 4, cudaMemcpyDeviceToHost, stream_);
    return {};
  }

  Expected<Graph*> graph_of(const Launcher& launcher, Ending ending) {
    const int kind = launcher.flow != FlowRows::none ? 5 + std::countr_zero(static_cast<unsigned>(launcher.flow))
                     : launcher.one_row              ? 4
                                                     : (launcher.decode ? 2 : 0) + (launcher.attention_groups ? 1 : 0);
    Graph& graph = graphs_[static_cast<size_t>(launcher.variant)][kind * kEndings + static_cast<int>(ending)];
    if (graph.exec != nullptr) return &graph;
    COHORT_TRY(check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capturing a step"));
    COHORT_TRY(launch_all(launcher, ending, [](size_t) -> Expected<void> { return {}; }));
    const cudaError_t launched = cudaGetLastError();
    cudaGraph_t captured = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &captured);
    if (launched != cudaSuccess && captured != nullptr) cudaGraphDestroy(captured);
    COHORT_TRY(check(launched, "launching a step's kernels"));
    COHORT_TRY(check(ended, "capturing a step"));
    size_t nodes = 0;
    cudaGraphGetNodes(captured, nullptr, &nodes);
    const cudaError_t error = cudaGraphInstantiate(&graph.exec, captured, 0);
    cudaGraphDestroy(captured);
    COHORT_TRY(check(error, "making the step's graph"));
    graph.kernels = static_cast<int64_t>(nodes) - (lowered_.distinct != nullptr ? 1 : 0);
    return &graph;
  }

  /// Runs the part that was written to host_: one launch with the graph, in which the host's visits are served.
  Expected<void> submit(const Launcher& launcher, const StepPart& part, Ending ending) {
    COHORT_ASSIGN(const Graph* graph, graph_of(launcher, ending));
    kernels_ += graph->kernels;
    const auto serve = [&](size_t visit) {
      return visits_->serve(visit, lowered_.visits[visit], ticket_, part.rows(), stream_);
    };
    if (!options_.graph) {
      submissions_ += graph->kernels;
      COHORT_TRY(launch_all(launcher, ending, serve));
      return check(cudaGetLastError(), "launching a step's kernels");
    }
    ++submissions_;
    COHORT_TRY(check(cudaGraphLaunch(graph->exec, stream_), "launching a step"));
    for (size_t visit = 0; visit < lowered_.visits.size(); ++visit) COHORT_TRY(serve(visit));
    return {};
  }

  /// A number that the last step does not have.
  int32_t next_ticket() { return ticket_ = static_cast<int32_t>(static_cast<uint32_t>(ticket_) + 1); }

  /// take(first sampled row of the batch, count): after each submission; waits for it and takes its results.
  template <class Take>
  Expected<StepStats> run_all(const Batch& batch, Ending ending, const Take& take) {
    const auto start = std::chrono::steady_clock::now();
    if (cache_.memory().keys.size() != program_.cache_layers.size())
      return fail(ErrorCode::internal, "CUDA: a step before the cache was allocated");
    StepStats stats;
    stats.rows = batch.rows();
    submissions_ = kernels_ = 0;
    host_seconds_ = 0;
    for (int32_t begin = 0, sampled = 0; begin < batch.rows();) {
      const StepPart part = writer_.next_part(batch, begin, sampled);
      if (part.rows() == 0) {
        return fail(ErrorCode::capacity, "CUDA: the canvas at row {} does not fit a step of {} rows, canvases of {}",
                    begin, limits_.rows, limits_.canvas);
      }
      const Variant variant = variant_of(part.rows());
      const bool decode = variant != Variant::tiles && StepWriter::one_row_each(batch, part);
      const bool may_group = can_group() && !StepWriter::has_canvas(batch, part);
      writer_.write(batch, part, may_group && !decode ? lowered_.group_rows : 1, next_ticket(), host_);
      if (ending == Ending::draw) {
        std::copy_n(rules_.begin() + sampled, part.sampled(), mapped_rules_);
        std::fill_n(mapped_draws_, part.sampled(), Draw{});
      }
      if (canvases_.any())
        COHORT_TRY(canvases_.prepare(batch, part, ending == Ending::canvas ? orders_ : CanvasOrders{}, stream_));
      const int32_t units = StepWriter::most_units(host_);
      const bool groups = may_group && (!decode || units > kFewUnits);
      const bool one_row = decode && !groups && part.rows() == 1 && units <= kClusterUnits;
      last_ = {variant, decode, groups, one_row, flow_of(decode, part.rows()), step_, sms_, stream_};
      last_.step.max_rows = most_rows(variant);
      if (auto done = submit(last_, part, ending); !done) {
        if (visits_ != nullptr) visits_->let_pass(ticket_);
        cudaStreamSynchronize(stream_);
        return tl::unexpected(std::move(done.error()));
      }
      COHORT_TRY(take(sampled, part.sampled()));
      if (lowered_.moe_layers > 0) {
        const double touched = results_[limits_.sampled];
        stats.distinct_experts += touched / lowered_.moe_layers;
        stats.bytes += touched * expert_bytes_;
      }
      stats.bytes += weight_bytes_;
      if (visits_ != nullptr) host_seconds_ += visits_->take_seconds();
      begin = part.end;
      sampled = part.last_sampled;
    }
    for (int32_t position : batch.positions) stats.bytes += cache_.bytes_seen(program_.cache_layers, position);
    stats.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return stats;
  }

  const Program& program_;
  CudaOptions options_;
  Limits limits_;
  std::string name_;
  int sms_ = 1;
  cudaStream_t stream_ = nullptr;
  DeviceMemory memory_;
  DeviceCache cache_;
  Placement placement_;
  size_t room_ = 0;                     // bytes of the device that weights, activations and cache may take
  std::unique_ptr<HostVisits> visits_;  // null: all experts are on the device
  Lowered lowered_;
  StepWriter writer_{limits_, {}};
  Step step_{};
  int32_t ticket_ = 0;       // of the last submission
  int32_t* host_ = nullptr;  // mapped: the step as the host writes it
  // mapped: [sampled] tokens, the touched experts, [sampled, kTopLogits] ids, as many logits
  int32_t* results_ = nullptr;
  std::vector<float> earlier_logits_;  // of a batch of several submissions: rows before first_kept_
  int32_t first_kept_ = 0;             // first sampled row of the last submission
  DrawRule* mapped_rules_ = nullptr;   // [sampled], mapped
  Draw* mapped_draws_ = nullptr;       // [sampled], mapped
  std::span<const DrawRule> rules_;    // of the batch that runs
  Canvases canvases_;
  CanvasOrders orders_;  // of the batch that runs
  unsigned long long* best_ = nullptr;
  int32_t* argmax_counters_ = nullptr;      // [sampled] and one more word for read_rate
  Graph graphs_[kVariants][10 * kEndings];  // by decode and groups, one row, or flow; and ending
  Launcher last_{};                         // of the last submission
  int64_t submissions_ = 0, kernels_ = 0;
  double weight_bytes_ = 0, expert_bytes_ = 0, device_weights_ = 0;
  double host_seconds_ = 0;  // of the last step's experts in host memory
};

}  // namespace
}  // namespace cuda

Expected<std::unique_ptr<CudaBackend>> make_cuda_backend(const Program& program, const CudaOptions& options) {
  auto backend = std::make_unique<cuda::Backend>(program, options);
  COHORT_TRY(backend->open());
  return std::unique_ptr<CudaBackend>(std::move(backend));
}

}  // namespace cohort

#endif  // COHORT_HAS_CUDA
