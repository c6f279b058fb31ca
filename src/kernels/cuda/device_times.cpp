#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/device_times.h"

#include <algorithm>
#include <optional>

#include "base/result.h"

namespace cohort::cuda {
namespace {

/// Two moments on a stream.
class Stopwatch {
 public:
  Stopwatch() { good_ = cudaEventCreate(&from_) == cudaSuccess && cudaEventCreate(&to_) == cudaSuccess; }
  ~Stopwatch() {
    if (from_ != nullptr) cudaEventDestroy(from_);
    if (to_ != nullptr) cudaEventDestroy(to_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  /// Seconds of what `work` puts on the stream; empty: something failed.
  template <class Work>
  std::optional<double> time(cudaStream_t stream, const Work& work) {
    if (!good_ || cudaEventRecord(from_, stream) != cudaSuccess) return {};
    work();
    float ms = 0;
    if (cudaEventRecord(to_, stream) != cudaSuccess || cudaStreamSynchronize(stream) != cudaSuccess ||
        cudaEventElapsedTime(&ms, from_, to_) != cudaSuccess)
      return {};
    return static_cast<double>(ms) / 1e3;
  }

 private:
  cudaEvent_t from_ = nullptr, to_ = nullptr;
  bool good_ = false;
};

}  // namespace

Expected<std::vector<KernelTime>> time_kinds(const std::vector<const Launch*>& launches, const Launcher& launcher) {
  constexpr int kRepeats = 4;
  std::vector<KernelTime> times;
  for (const Launch* launch : launches) {
    const auto known =
        std::find_if(times.begin(), times.end(), [&](const KernelTime& t) { return t.kind == launch->kind; });
    if (known == times.end()) {
      times.push_back({launch->kind, 1, 0});
    } else {
      ++known->launches;
    }
  }
  Stopwatch watch;
  for (KernelTime& time : times) {
    COHORT_TRY(check(cudaStreamBeginCapture(launcher.stream, cudaStreamCaptureModeThreadLocal), "capturing a profile"));
    for (const Launch* launch : launches) {
      if (time.kind == launch->kind) launch->run(launcher);
    }
    cudaGraph_t captured = nullptr;
    cudaGraphExec_t exec = nullptr;
    COHORT_TRY(check(cudaStreamEndCapture(launcher.stream, &captured), "capturing a profile"));
    const cudaError_t made = cudaGraphInstantiate(&exec, captured, 0);
    cudaGraphDestroy(captured);
    COHORT_TRY(check(made, "capturing a profile"));
    std::optional<double> best;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const auto seconds = watch.time(launcher.stream, [&] { cudaGraphLaunch(exec, launcher.stream); });
      if (seconds && (!best || *seconds < *best)) best = seconds;
    }
    cudaGraphExecDestroy(exec);
    if (!best) {
      COHORT_TRY(check(cudaGetLastError(), "running a profile"));
      return fail(ErrorCode::unsupported, "CUDA: kernels of kind '{}' could not be timed", time.kind);
    }
    time.seconds = *best;
  }
  return times;
}

double read_rate(const std::byte* data, size_t bytes, int32_t* out, int sms, cudaStream_t stream) {
  constexpr int kRepeats = 5;
  Stopwatch watch;
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto seconds = watch.time(stream, [&] { launch_read(data, bytes, out, sms, stream); });
    if (!seconds) break;
    if (best == 0 || *seconds < best) best = *seconds;
  }
  return best > 0 ? static_cast<double>(bytes) / best : 0;
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
