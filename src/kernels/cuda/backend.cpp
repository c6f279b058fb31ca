#include "kernels/cuda/backend.h"

#include "base/result.h"

#ifndef COHORT_HAS_CUDA

namespace cohort {

Expected<std::unique_ptr<CudaBackend>> make_cuda_backend(const Program&, const CudaOptions&) {
  return fail(ErrorCode::unsupported, "this binary was built without CUDA; use --device cpu");
}
Expected<std::string> describe_cuda_device(int) {
  return fail(ErrorCode::unsupported, "this binary was built without CUDA; use --device cpu");
}

}  // namespace cohort

#else

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "kernels/cuda/lower.h"
#include "kernels/cuda/stamps.h"
#include "kv/cache.h"

namespace cohort {
namespace cuda {
namespace {

constexpr int32_t kMaxPages = 1 << 20;  // page ids of one submission
// Decode steps of so few units of attention spread the heads over blocks: with 24 streams of one short split each it is
// as fast, with 9 a tenth of the step faster; with 27 units of 9 streams the groups of heads are.
constexpr int32_t kFewUnits = 24;
// A single row of so many splits has a block of a cluster for each (launch_attention_few).
constexpr int32_t kClusterUnits = 4;

Expected<cudaDeviceProp> open_device(int device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) return fail(ErrorCode::unsupported, "no CUDA driver was found on this machine; use --device cpu");
    return fail(ErrorCode::unsupported,
                "the CUDA driver is too old: it supports CUDA {}.{}, this binary needs {}.{}; update the driver or use "
                "--device cpu",
                driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
    return fail(ErrorCode::unsupported, "no CUDA device was found; use --device cpu");
  COHORT_TRY(check(error, "looking for devices"));
  if (device < 0 || device >= count)
    return fail(ErrorCode::invalid_argument, "there is no CUDA device {}: there are {}, counted from 0", device, count);
  cudaDeviceProp properties = {};
  COHORT_TRY(check(cudaGetDeviceProperties(&properties, device), "reading the device's properties"));
  if (properties.major < 9) {
    return fail(ErrorCode::unsupported,
                "device {} ({}) has compute capability {}.{}; this build needs 9.0 or newer; use --device cpu", device,
                properties.name, properties.major, properties.minor);
  }
  return properties;
}

class Backend final : public CudaBackend {
 public:
  Backend(const Program& program, const CudaOptions& options) : program_(program), options_(options) {
    limits_.rows = std::max(options.max_rows, kWideRows);
  }

  ~Backend() override {
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    drop_graphs();
    if (host_ != nullptr) cudaFreeHost(host_);
    if (results_ != nullptr) cudaFreeHost(results_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  Expected<void> open() {
    COHORT_ASSIGN(const cudaDeviceProp properties, open_device(options_.device));
    name_ = properties.name;
    sms_ = properties.multiProcessorCount;
    COHORT_TRY(check(cudaSetDevice(options_.device), "selecting the device"));
    COHORT_TRY(check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"));
    COHORT_TRY(allocate_step());
    CostQuery one_expert;
    one_expert.distinct_experts = 1;
    for (const Op& op : program_.ops) {
      const double bytes = cost_of(program_, op, one_expert).weight_bytes;
      if (const auto* experts = std::get_if<op::Experts>(&op.action)) {
        expert_bytes_ = bytes;  // of one expert of one layer
        total_bytes_ += bytes * static_cast<double>(experts->gate->experts);
      } else if (!std::holds_alternative<op::Embed>(op.action)) {
        weight_bytes_ += bytes;  // read by every step
        total_bytes_ += bytes;
      }
    }
    COHORT_TRY(check_room());
    COHORT_ASSIGN(auto uploader, Uploader::create(memory_, options_.threads, total_bytes_, options_.progress));
    COHORT_ASSIGN(lowered_, lower(program_, limits_, cache_, memory_, *uploader, sms_));
    COHORT_TRY(allocate_stamps(memory_, lowered_.launches.size(), step_));
    return uploader->finish();
  }

  std::string description() const override {
    return fmt::format("cuda:{} {}, {:.2f} GB on the device", options_.device, name_,
                       static_cast<double>(device_bytes()) / 1e9);
  }

  Expected<void> allocate_cache(TensorType type, int32_t pages) override {
    switch (type) {
      case TensorType::f32:
        cache_.type = CacheType::f32;
        break;
      case TensorType::f16:
        cache_.type = CacheType::f16;
        break;
      case TensorType::bf16:
        cache_.type = CacheType::bf16;
        break;
      case TensorType::q8_0:
        cache_.type = CacheType::q8_0;
        break;
      default:
        return fail(ErrorCode::unsupported, "the KV cache on the device can be f32, f16, bf16 or q8_0, not {}",
                    type_info(type).name);
    }
    drop_graphs();
    cache_memory_.clear();
    cache_.keys.clear();
    cache_.values.clear();
    pages_ = pages;
    for (const CacheLayer& layer : program_.cache_layers) {
      const size_t bytes = page_half_bytes(cache_.type, layer.kv_heads, layer.head_dim) * static_cast<size_t>(pages);
      for (auto* list : {&cache_.keys, &cache_.values}) {
        COHORT_ASSIGN(void* memory, cache_memory_.allocate(bytes, "the KV cache"));
        // Rows that nobody wrote are read (and not used) beside the last position: they must be numbers.
        COHORT_TRY(check(cudaMemsetAsync(memory, 0, bytes, stream_), "clearing the KV cache"));
        list->push_back(static_cast<std::byte*>(memory));
      }
    }
    if (lowered_.flow != nullptr) COHORT_TRY(set_flow_cache(*lowered_.flow, cache_));
    return check(cudaStreamSynchronize(stream_), "clearing the KV cache");
  }

  void copy_page(int32_t from, int32_t to) override {
    for (size_t i = 0; i < cache_.keys.size(); ++i) {
      const CacheLayer& layer = program_.cache_layers[i];
      const size_t bytes = page_half_bytes(cache_.type, layer.kv_heads, layer.head_dim);
      launch_copy_page(cache_.keys[i], bytes, from, to, stream_);
      launch_copy_page(cache_.values[i], bytes, from, to, stream_);
    }
  }

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
  Expected<StepStats> run_top(const Batch& batch, std::span<TopLogit> top) override {
    earlier_logits_.clear();
    const auto total = static_cast<int32_t>(batch.sampled_rows.size());
    return run_all(batch, Ending::top, [&](int32_t sampled, int32_t count) -> Expected<void> {
      COHORT_TRY(check(cudaStreamSynchronize(stream_), "running a step"));
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
  size_t free_cache_bytes() const override {
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
    return free;
  }
  double read_bandwidth() override {
    if (cudaSetDevice(options_.device) != cudaSuccess) return 0;
    for (size_t bytes = size_t{2} << 30; bytes >= size_t{256} << 20; bytes /= 2) {
      void* data = nullptr;
      if (cudaMalloc(&data, bytes) != cudaSuccess) {
        cudaGetLastError();
        continue;
      }
      const double rate = read_rate(static_cast<std::byte*>(data), bytes);
      cudaFree(data);
      return rate;
    }
    return 0;
  }
  Expected<std::vector<KernelTime>> profile(int32_t rows) override {
    Launcher launcher = last_;
    launcher.variant = variant_of(rows);
    launcher.step.max_rows = most_rows(launcher.variant);
    std::vector<KernelTime> times;
    const std::vector<const Launch*> launches = launches_of(last_.flow);
    for (const Launch* launch : launches) {
      const auto known =
          std::find_if(times.begin(), times.end(), [&](const KernelTime& t) { return t.kind == launch->kind; });
      if (known == times.end()) {
        times.push_back({launch->kind, 1, 0});
      } else {
        ++known->launches;
      }
    }
    cudaEvent_t from = nullptr, to = nullptr;
    COHORT_TRY(check(cudaEventCreate(&from), "an event"));
    COHORT_TRY(check(cudaEventCreate(&to), "an event"));
    for (KernelTime& time : times) {
      float best = 1e30F;
      for (int repeat = 0; repeat < 4; ++repeat) {
        COHORT_TRY(check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capturing a profile"));
        for (const Launch* launch : launches) {
          if (time.kind == launch->kind) launch->run(launcher);
        }
        cudaGraph_t captured = nullptr;
        cudaGraphExec_t exec = nullptr;
        COHORT_TRY(check(cudaStreamEndCapture(stream_, &captured), "capturing a profile"));
        COHORT_TRY(check(cudaGraphInstantiate(&exec, captured, 0), "capturing a profile"));
        cudaGraphDestroy(captured);
        cudaEventRecord(from, stream_);
        cudaGraphLaunch(exec, stream_);
        cudaEventRecord(to, stream_);
        COHORT_TRY(check(cudaStreamSynchronize(stream_), "running a profile"));
        cudaGraphExecDestroy(exec);
        float ms = 0;
        cudaEventElapsedTime(&ms, from, to);
        best = std::min(best, ms);
      }
      time.seconds = static_cast<double>(best) / 1e3;
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return times;
  }
  Expected<std::vector<BlockStamps>> stamps() override { return read_stamps(step_, launches_of(last_.flow)); }
  int64_t submissions() const override { return submissions_; }
  int64_t kernels() const override { return kernels_; }
  size_t device_bytes() const override { return memory_.bytes() + cache_memory_.bytes(); }

 private:
  /// Refuses a model whose weights cannot fit before any are packed.
  Expected<void> check_room() const {
    size_t free = 0, total = 0;
    COHORT_TRY(check(cudaMemGetInfo(&free, &total), "reading the device's memory"));
    if (total_bytes_ <= static_cast<double>(free)) return {};
    return fail(ErrorCode::capacity,
                "the weights take {:.2f} GB, of the device's {:.2f} GB {:.2f} are free: use a smaller quantisation or "
                "--device cpu (experts are not split between device and host)",
                total_bytes_ / 1e9, static_cast<double>(total) / 1e9, static_cast<double>(free) / 1e9);
  }

  /// What follows the logits in a step: nothing, the highest one, or the kTopLogits highest ones of each row.
  enum class Ending { logits, greedy, top };
  static constexpr int kEndings = 3;

  /// Bytes a second of the fastest of a few passes; 0: it failed.
  double read_rate(const std::byte* data, size_t bytes) {
    cudaEvent_t from = nullptr, to = nullptr;
    float best = 0;
    if (cudaEventCreate(&from) == cudaSuccess && cudaEventCreate(&to) == cudaSuccess) {
      for (int repeat = 0; repeat < 5; ++repeat) {
        cudaEventRecord(from, stream_);
        launch_read(data, bytes, argmax_counters_ + limits_.sampled, sms_, stream_);
        cudaEventRecord(to, stream_);
        float ms = 0;
        if (cudaStreamSynchronize(stream_) != cudaSuccess || cudaEventElapsedTime(&ms, from, to) != cudaSuccess) break;
        if (best == 0 || ms < best) best = ms;
      }
    }
    if (from != nullptr) cudaEventDestroy(from);
    if (to != nullptr) cudaEventDestroy(to);
    return best > 0 ? static_cast<double>(bytes) / (best * 1e-3) : 0;
  }

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

  Expected<void> allocate_step() {
    const auto ints = [&](int64_t count) -> Expected<int32_t*> {
      COHORT_ASSIGN(void* memory, memory_.allocate(static_cast<size_t>(count) * 4, "the step's data"));
      COHORT_TRY(check(cudaMemset(memory, 0, static_cast<size_t>(count) * 4), "the step's data"));
      return static_cast<int32_t*>(memory);
    };
    const int64_t rows = limits_.rows;
    COHORT_ASSIGN(step_.header, ints(kHeaderWords));
    COHORT_ASSIGN(step_.tokens, ints(rows));
    COHORT_ASSIGN(step_.positions, ints(rows));
    COHORT_ASSIGN(step_.page_begin, ints(rows));
    COHORT_ASSIGN(step_.sampled_rows, ints(limits_.sampled));
    COHORT_ASSIGN(step_.pages, ints(kMaxPages + kSplitPositions / kPagePositions));
    for (auto& units : step_.units) {
      COHORT_ASSIGN(units, ints(int64_t{limits_.units} * kUnitWords));
    }
    COHORT_ASSIGN(int32_t * best, ints(limits_.sampled * 2));
    best_ = reinterpret_cast<unsigned long long*>(best);
    COHORT_ASSIGN(argmax_counters_, ints(limits_.sampled + 1));
    const int64_t words =
        kHeaderWords + 3 * rows + limits_.sampled + kMaxPages + kMaxWindows * int64_t{limits_.units} * kUnitWords;
    void* host = nullptr;
    COHORT_TRY(check(cudaHostAlloc(&host, static_cast<size_t>(words) * 4, cudaHostAllocMapped), "pinned memory"));
    host_ = static_cast<int32_t*>(host);
    const int64_t result_words = limits_.sampled + 1 + 2 * int64_t{limits_.sampled} * kTopLogits;
    COHORT_TRY(
        check(cudaHostAlloc(&host, static_cast<size_t>(result_words) * 4, cudaHostAllocMapped), "pinned memory"));
    results_ = static_cast<int32_t*>(host);
    return {};
  }

  /// Rows [begin, end) of the batch, which fit one submission, written to the mapped memory.
  void write_step(const Batch& batch, int32_t begin, int32_t end, int32_t first_sampled, int32_t last_sampled,
                  int32_t group_rows) {
    const int32_t rows = end - begin;
    std::fill_n(host_, kHeaderWords, 0);
    int32_t* tokens = host_ + kHeaderWords;
    int32_t* positions = tokens + rows;
    int32_t* page_begin = positions + rows;
    int32_t* sampled = page_begin + rows;
    int32_t* pages = sampled + (last_sampled - first_sampled);
    std::copy_n(batch.tokens.begin() + begin, rows, tokens);
    std::copy_n(batch.positions.begin() + begin, rows, positions);
    for (int32_t i = first_sampled; i < last_sampled; ++i)
      sampled[i - first_sampled] = batch.sampled_rows[static_cast<size_t>(i)] - begin;
    int32_t page_count = 0;
    for (const SequenceRows& s : batch.sequences) {
      const int32_t from = std::max(begin, s.first_row), to = std::min(end, s.first_row + s.rows);
      if (from >= to) continue;
      for (int32_t row = from; row < to; ++row) page_begin[row - begin] = page_count;
      const int32_t last_position = s.first_position + (to - 1 - s.first_row);
      const int32_t needed = last_position / kPagePositions + 1;
      std::copy_n(s.pages.begin(), needed, pages + page_count);
      page_count += needed;
    }
    int32_t* units = pages + page_count;
    for (size_t w = 0; w < lowered_.windows.size(); ++w) {
      const auto window = static_cast<int32_t>(w);
      int32_t tiles = 0;
      const int32_t count =
          write_units(lowered_.windows[w], group_rows, rows, positions, page_begin, pages, units, tiles);
      host_[kUnits + window] = count;
      host_[kTileUnits + window] = tiles;
      units += count * kUnitWords;
    }
    host_[kRows] = rows;
    host_[kSampled] = last_sampled - first_sampled;
    host_[kPages] = page_count;
  }

  /// The units of one window, each of at most `group_rows` rows: first those of more than kFewRows rows, of which the
  /// ones with more pages come first, since they are worked on in this order; then the others, whole splits first, so
  /// that no block starts one last. Returns how many there are, tiles: how many of the first kind.
  int32_t write_units(int32_t window, int32_t group_rows, int32_t rows, const int32_t* positions,
                      const int32_t* page_begin, const int32_t* pages, int32_t* out, int32_t& tiles) const {
    constexpr int32_t kPages = kSplitPositions / kPagePositions;
    int32_t total = 0;
    // Places in this order: kPages + 1 down to 2 for the pages of the first kind, then 1 and 0.
    for (int32_t place = group_rows > 1 ? kPages + 1 : 1; place >= 0; --place) {
      int32_t partial = 0, count = 1;
      for (int32_t row = 0; row < rows; row += count) {
        const auto range = splits(window, positions[row]);
        const auto [first, last] = range;
        count = 1;
        while (count < group_rows && row + count < rows && page_begin[row + count] == page_begin[row] &&
               positions[row + count] == positions[row] + count && splits(window, positions[row + count]) == range)
          ++count;
        const int32_t last_page = positions[row + count - 1] / kPagePositions;
        for (int32_t split = first; split <= last; ++split) {
          const int32_t unit_pages = std::min(last_page - split * kPages + 1, kPages);
          if ((count > kFewRows ? unit_pages + 1 : split < last ? 1 : 0) != place) continue;
          int32_t* unit = out + int64_t{total++} * kUnitWords;
          unit[kUnitRow] = row;
          unit[kUnitSplit] = split;
          unit[kUnitPosition] = positions[row];
          unit[kUnitPartial] = partial;
          unit[kUnitRows] = count;
          for (int32_t p = 0; p < kPages; ++p)
            unit[kUnitPages + p] = pages[page_begin[row] + std::min(split * kPages + p, last_page)];
        }
        partial += count * (last - first + 1);
      }
      if (place == 2) tiles = total;
    }
    return total;
  }

  /// First and last split that a row at `position` sees.
  static std::pair<int32_t, int32_t> splits(int32_t window, int32_t position) {
    const int32_t first_visible = window > 0 ? std::max(0, position + 1 - window) : 0;
    return {first_visible / kSplitPositions, position / kSplitPositions};
  }

  /// Whether launch_attention_group can run this program's attention.
  bool can_group() const {
    return lowered_.attention_groups && (cache_.type == CacheType::f16 || cache_.type == CacheType::bf16);
  }
  /// Of the step that was written: the most units of a window.
  int32_t most_units() const { return *std::max_element(host_ + kUnits, host_ + kUnits + kMaxWindows); }

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

  /// Whether every sequence has at most one of the rows [begin, end).
  static bool one_row_each(const Batch& batch, int32_t begin, int32_t end) {
    return std::all_of(batch.sequences.begin(), batch.sequences.end(), [&](const SequenceRows& s) {
      return std::min(end, s.first_row + s.rows) - std::max(begin, s.first_row) <= 1;
    });
  }

  /// How many rows from `begin` fit one submission.
  int32_t rows_that_fit(const Batch& batch, int32_t begin, int32_t first_sampled) const {
    std::vector<int64_t> units(lowered_.windows.size(), 0);
    int32_t sampled = first_sampled, row = begin;
    const auto total = static_cast<int32_t>(batch.sampled_rows.size());
    for (; row < batch.rows() && row - begin < limits_.rows; ++row) {
      bool fits = true;
      for (size_t w = 0; w < units.size(); ++w) {
        const auto [first, last] = splits(lowered_.windows[w], batch.positions[static_cast<size_t>(row)]);
        units[w] += last - first + 1;
        fits &= units[w] <= limits_.units;
      }
      if (sampled < total && batch.sampled_rows[static_cast<size_t>(sampled)] == row) {
        ++sampled;
        fits &= sampled - first_sampled <= limits_.sampled;
      }
      if (!fits && row > begin) break;
    }
    return row - begin;
  }

  /// The kernel for all layers of a decode step of `rows` rows, if there is one.
  FlowRows flow_of(bool decode, int32_t rows) const {
    const int32_t* positions = host_ + kHeaderWords + rows;
    if (!decode || rows > kFlowRows || lowered_.flow == nullptr || !lowered_.flow->ready ||
        *std::max_element(positions, positions + rows) >= FlowShape::kMaxSplits * kSplitPositions)
      return FlowRows::none;
    // Measured: with K formats the kernels of the phases are as fast at four rows, and faster above eight.
    if (lowered_.flow->formats == FlowFormats::k && ((rows > 2 && rows <= 4) || rows > 8)) return FlowRows::none;
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

  void launch_all(const Launcher& kind, Ending ending) {
    Launcher launcher = kind;
    launcher.step.max_rows = most_rows(launcher.variant);
    launch_begin({host_, launcher.step, lowered_.distinct}, stream_);
    for (const Launch* launch : launches_of(launcher.flow)) {
      launch->run(launcher);
      next_launch(launcher.step);
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
    } else if (ending == Ending::top) {
      launch_top({launcher.step, lowered_.logits, program_.vocabulary, top_ids(), top_values()}, sms_, stream_);
    }
    if (lowered_.distinct != nullptr)
      cudaMemcpyAsync(results_ + limits_.sampled, lowered_.distinct, 4, cudaMemcpyDeviceToHost, stream_);
  }

  Expected<Graph*> graph_of(const Launcher& of, Ending ending) {
    const int kind = of.flow != FlowRows::none ? 5 + std::countr_zero(static_cast<unsigned>(of.flow))
                     : of.one_row              ? 4
                                               : (of.decode ? 2 : 0) + (of.attention_groups ? 1 : 0);
    Graph& graph = graphs_[static_cast<size_t>(of.variant)][kind * kEndings + static_cast<int>(ending)];
    if (graph.exec != nullptr) return &graph;
    COHORT_TRY(check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capturing a step"));
    launch_all(of, ending);
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

  /// take(first sampled row of the batch, count): after each submission; waits for it and takes its results.
  template <class Take>
  Expected<StepStats> run_all(const Batch& batch, Ending ending, const Take& take) {
    const auto start = std::chrono::steady_clock::now();
    if (cache_.keys.size() != program_.cache_layers.size())
      return fail(ErrorCode::internal, "CUDA: a step before the cache was allocated");
    StepStats stats;
    stats.rows = batch.rows();
    submissions_ = kernels_ = 0;
    const auto total_sampled = static_cast<int32_t>(batch.sampled_rows.size());
    int32_t sampled = 0;
    for (int32_t begin = 0; begin < batch.rows();) {
      const int32_t rows = rows_that_fit(batch, begin, sampled);
      int32_t sampled_end = sampled;
      while (sampled_end < total_sampled && batch.sampled_rows[static_cast<size_t>(sampled_end)] < begin + rows)
        ++sampled_end;
      const Variant variant = variant_of(rows);
      const bool decode = variant != Variant::tiles && one_row_each(batch, begin, begin + rows);
      write_step(batch, begin, begin + rows, sampled, sampled_end, can_group() && !decode ? lowered_.group_rows : 1);
      const bool groups = can_group() && (!decode || most_units() > kFewUnits);
      const bool one_row = decode && !groups && rows == 1 && most_units() <= kClusterUnits;
      last_ = {variant, decode, groups, one_row, flow_of(decode, rows), step_, sms_, stream_};
      COHORT_ASSIGN(const Graph* graph, graph_of(last_, ending));
      kernels_ += graph->kernels;
      if (options_.graph) {
        COHORT_TRY(check(cudaGraphLaunch(graph->exec, stream_), "launching a step"));
        ++submissions_;
      } else {
        launch_all(last_, ending);
        COHORT_TRY(check(cudaGetLastError(), "launching a step's kernels"));
        submissions_ += graph->kernels;
      }
      const int32_t count = sampled_end - sampled;
      COHORT_TRY(take(sampled, count));
      if (lowered_.moe_layers > 0) {
        const double touched = results_[limits_.sampled];
        stats.distinct_experts += touched / lowered_.moe_layers;
        stats.bytes += touched * expert_bytes_;
      }
      stats.bytes += weight_bytes_;
      begin += rows;
      sampled = sampled_end;
    }
    for (int32_t position : batch.positions) {
      for (const CacheLayer& layer : program_.cache_layers) {
        const int32_t seen = layer.window > 0 ? std::min(layer.window, position + 1) : position + 1;
        stats.bytes += 2.0 * seen / kPagePositions *
                       static_cast<double>(page_half_bytes(cache_.type, layer.kv_heads, layer.head_dim));
      }
    }
    stats.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return stats;
  }

  const Program& program_;
  CudaOptions options_;
  Limits limits_;
  std::string name_;
  int sms_ = 1;
  cudaStream_t stream_ = nullptr;
  DeviceMemory memory_, cache_memory_;
  CacheMemory cache_;
  Lowered lowered_;
  Step step_{};
  int32_t* host_ = nullptr;  // mapped: the step as the host writes it
  // mapped: [sampled] tokens, the touched experts, [sampled, kTopLogits] ids, as many logits
  int32_t* results_ = nullptr;
  std::vector<float> earlier_logits_;  // of a batch of several submissions: rows before first_kept_
  int32_t first_kept_ = 0;             // first sampled row of the last submission
  unsigned long long* best_ = nullptr;
  int32_t* argmax_counters_ = nullptr;      // [sampled] and one more word for read_rate
  Graph graphs_[kVariants][10 * kEndings];  // by decode and groups, one row, or flow; and ending
  int32_t pages_ = 0;
  Launcher last_{};  // of the last submission
  int64_t submissions_ = 0, kernels_ = 0;
  double weight_bytes_ = 0, expert_bytes_ = 0, total_bytes_ = 0;
};

}  // namespace
}  // namespace cuda

Expected<std::unique_ptr<CudaBackend>> make_cuda_backend(const Program& program, const CudaOptions& options) {
  auto backend = std::make_unique<cuda::Backend>(program, options);
  COHORT_TRY(backend->open());
  return std::unique_ptr<CudaBackend>(std::move(backend));
}

Expected<std::string> describe_cuda_device(int device) {
  COHORT_ASSIGN(const cudaDeviceProp properties, cuda::open_device(device));
  size_t free = 0, total = 0;
  COHORT_TRY(cuda::check(cudaSetDevice(device), "selecting the device"));
  COHORT_TRY(cuda::check(cudaMemGetInfo(&free, &total), "reading the device's memory"));
  return fmt::format("{}, {:.1f} GB free of {:.1f}", properties.name, static_cast<double>(free) / 1e9,
                     static_cast<double>(total) / 1e9);
}

}  // namespace cohort

#endif  // COHORT_HAS_CUDA
