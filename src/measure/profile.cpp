#include "measure/profile.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/counted.h"
#include "base/memory.h"
#include "base/result.h"
#include "engine/backend_choice.h"
#include "kernels/cpu/backend.h"
#include "kernels/cuda/backend.h"
#include "kv/cache.h"
#include "kv/pages.h"
#include "measure/fed_streams.h"

namespace cohort {
namespace {

/// The operation without its layer: "blk.3.attn_q" is "attn_q".
std::string without_layer(const Op& op) {
  const std::string prefix = fmt::format("blk.{}.", op.layer);
  return op.layer >= 0 && op.name.starts_with(prefix) ? op.name.substr(prefix.size()) : op.name;
}

bool multiplies_int8(const Op& op) {
  if (const auto* linear = std::get_if<op::Linear>(&op.action)) return type_info(linear->weight->type).quantised;
  if (const auto* route = std::get_if<op::Route>(&op.action)) return type_info(route->router->type).quantised;
  if (const auto* experts = std::get_if<op::Experts>(&op.action)) return type_info(experts->gate->type).quantised;
  return false;
}

/// Positions that `rows` consecutive rows from `first` on attend to, in sum.
double positions_seen(int64_t first, int64_t rows, int32_t window) {
  double sum = 0;
  for (int64_t t = first; t < first + rows; ++t)
    sum += static_cast<double>(window > 0 ? std::min<int64_t>(t + 1, window) : t + 1);
  return sum;
}

struct Workload {
  int64_t rows, sampled;                       // of all steps
  std::function<double(int32_t window)> seen;  // positions attended to by all rows
};

class Profiler {
 public:
  /// canvas: rows that a stream denoises together; 0: one token after another.
  Profiler(const ProfileOptions& options, const Program& program, int32_t canvas, CpuBackend& backend)
      : options_(options), program_(program), canvas_(canvas), backend_(backend) {}

  Expected<ProfilePoint> point(int32_t streams, bool prefill) {
    const ProfileOptions& o = options_;
    struct Run {
      cpu::StepProfile profile;
      StepStats stats;
    };
    std::vector<Run> runs(static_cast<size_t>(o.repeats) + 1);
    const FeedShape shape = {o.prompt_tokens, o.steps, o.engine.prefill_rows, false, canvas_};
    for (Run& run : runs) {
      FedStreams fed(backend_, program_, shape, streams);
      if (prefill) backend_.set_profile(&run.profile);
      COHORT_ASSIGN(run.stats, fed.prefill());
      if (prefill) {
        backend_.set_profile(nullptr);
        continue;
      }
      backend_.set_profile(&run.profile);
      COHORT_ASSIGN(run.stats, fed.decode());
      backend_.set_profile(nullptr);
    }
    runs.erase(runs.begin());  // warmed up
    std::ranges::nth_element(runs, runs.begin() + o.repeats / 2, {},
                             [](const Run& run) { return run.profile.seconds; });
    const Run& run = runs[static_cast<size_t>(o.repeats / 2)];
    if (!prefill && canvas_ > 0) {
      const int64_t rows = int64_t{streams} * o.steps * canvas_;
      const auto seen = [=, this](int32_t window) {
        const int32_t past = window > 0 ? std::min(o.prompt_tokens, window - 1) : o.prompt_tokens;
        return static_cast<double>(rows) * (past + canvas_);
      };
      return summarise(run.profile, run.stats, {rows, rows, seen}, streams, prefill);
    }
    const int64_t each = prefill ? o.prompt_tokens : o.steps;
    const int64_t first = prefill ? 0 : o.prompt_tokens;
    const Workload work = {streams * each, prefill ? streams : streams * each,
                           [=](int32_t window) { return streams * positions_seen(first, each, window); }};
    return summarise(run.profile, run.stats, work, streams, prefill);
  }

 private:
  double limit_of(const ProfileEntry& e, bool int8) const {
    return std::max(options_.bandwidth > 0 ? e.bytes / options_.bandwidth : 0, compute_seconds(e.operations, int8));
  }
  double compute_seconds(double operations, bool int8) const {
    const double peak = int8 ? options_.int8_peak : options_.float_peak;
    return peak > 0 ? operations / peak : 0;
  }

  ProfilePoint summarise(const cpu::StepProfile& profile, const StepStats& stats, const Workload& work, int32_t streams,
                         bool prefill) const {
    const auto steps = static_cast<double>(profile.steps);
    const double threads = backend_.threads();
    ProfilePoint p;
    p.streams = streams;
    p.prefill = prefill;
    p.rows = static_cast<double>(work.rows) / steps;
    p.seconds = profile.seconds / steps;
    p.distinct_experts = stats.distinct_experts / steps;
    p.serial_seconds = profile.serial_seconds / steps;
    double bytes = 0, compute = 0, busy = 0;
    std::map<std::string, size_t> index;
    std::map<int32_t, ProfileEntry> layers;
    for (size_t i = 0; i < profile.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      CostQuery query;
      query.rows = work.rows;
      query.sampled = work.sampled;
      if (const auto* attend = std::get_if<op::Attend>(&op.action)) query.kv_positions = work.seen(attend->window);
      ProfileEntry e;
      e.name = without_layer(op);
      e.kind = kind_name(op.action);
      e.seconds = profile.ops[i].busy_seconds / threads / steps;
      e.bytes = profile.ops[i].bytes / steps;
      e.operations = cost_of(program_, op, query).operations / steps;
      e.jobs = static_cast<int64_t>(static_cast<double>(profile.ops[i].jobs) / steps);
      e.roofline_seconds = limit_of(e, multiplies_int8(op));
      bytes += e.bytes;
      compute += compute_seconds(e.operations, multiplies_int8(op));
      busy += e.seconds;
      const auto [at, added] = index.try_emplace(e.name, p.operations.size());
      if (added) p.operations.push_back({e.name, e.kind});
      add(p.operations[at->second], e);
      ProfileEntry& layer = layers[op.layer];
      layer.name = op.layer < 0 ? "outside" : fmt::format("{}", op.layer);
      layer.kind = "layer";
      add(layer, e);
    }
    for (const auto& stage : profile.stages) {
      p.wait_seconds += std::accumulate(stage.wait_seconds.begin(), stage.wait_seconds.end(), 0.0) / threads / steps;
    }
    p.core_use = busy / p.seconds;
    const double memory = options_.bandwidth > 0 ? bytes / options_.bandwidth : 0;
    p.memory_bound = memory >= compute;
    p.roofline_seconds = std::max(memory, compute);
    std::ranges::stable_sort(p.operations, std::greater(), &ProfileEntry::seconds);
    for (auto& [number, layer] : layers) {
      if (number >= 0) p.layers.push_back(layer);
    }
    if (layers.contains(-1)) p.layers.push_back(layers[-1]);
    return p;
  }

  static void add(ProfileEntry& to, const ProfileEntry& e) {
    to.seconds += e.seconds;
    to.bytes += e.bytes;
    to.operations += e.operations;
    to.roofline_seconds += e.roofline_seconds;
    to.jobs += e.jobs;
  }

  const ProfileOptions& options_;
  const Program& program_;
  int32_t canvas_;
  CpuBackend& backend_;
};

/// Kernels of a step on a device, each kind run by itself on the data of the last step. Bytes and layers are not known
/// by kind.
/// canvas: rows that a stream denoises together; 0: one token after another.
Expected<ProfilePoint> device_point(CudaBackend& backend, const Program& program, const ProfileOptions& o,
                                    double bandwidth, int32_t canvas, int32_t streams, bool prefill) {
  const FeedShape shape = {o.prompt_tokens, o.steps, o.engine.prefill_rows, false, canvas};
  ProfilePoint p;
  p.streams = streams;
  p.prefill = prefill;
  std::vector<StepStats> runs(static_cast<size_t>(o.repeats) + 1);
  for (StepStats& run : runs) {
    FedStreams fed(backend, program, shape, streams);
    COHORT_ASSIGN(run, fed.prefill());
    if (prefill) continue;
    COHORT_ASSIGN(run, fed.decode());
  }
  runs.erase(runs.begin());  // warmed up
  std::ranges::nth_element(runs, runs.begin() + o.repeats / 2, {}, &StepStats::seconds);
  const StepStats& run = runs[static_cast<size_t>(o.repeats / 2)];
  const int32_t chunk = std::min(o.engine.prefill_rows, o.prompt_tokens);
  const int32_t steps = prefill ? (o.prompt_tokens + chunk - 1) / chunk * streams : o.steps;
  const int32_t each = std::max(canvas, 1);
  p.rows = static_cast<double>(streams) * (prefill ? o.prompt_tokens : o.steps * each) / steps;
  p.seconds = run.seconds / steps;
  p.distinct_experts = run.distinct_experts / steps;
  p.bytes = run.bytes / steps;
  p.roofline_seconds = bandwidth > 0 ? p.bytes / bandwidth : 0;
  COHORT_ASSIGN(const std::vector<KernelTime> times,
                backend.profile(prefill ? (o.prompt_tokens - 1) % chunk + 1 : streams * each));
  for (const KernelTime& t : times) {
    ProfileEntry e;
    e.name = t.kind;
    e.kind = "kernel";
    e.seconds = t.seconds;
    e.jobs = t.launches;
    p.operations.push_back(e);
  }
  std::ranges::stable_sort(p.operations, std::greater(), &ProfileEntry::seconds);
  return p;
}

std::string explain_device(const ProfilePoint& p) {
  double sum = 0;
  int64_t launches = 0;
  for (const ProfileEntry& e : p.operations) {
    sum += e.seconds;
    launches += e.jobs;
  }
  std::string text = fmt::format("{:.1f} MB must be read, which takes {:.2f} of {:.2f} ms. ", p.bytes / 1e6,
                                 p.roofline_seconds * 1e3, p.seconds * 1e3);
  text += fmt::format(
      "The kernels by themselves, one kind at a time, take {:.2f} ms in {} launches; in a step neighbours overlap.",
      sum * 1e3, launches);
  if (!p.operations.empty())
    text += fmt::format(" Most goes into {} ({:.2f} ms).", p.operations[0].name, p.operations[0].seconds * 1e3);
  return text;
}

double total_bytes(const ProfilePoint& p) {
  double bytes = 0;
  for (const ProfileEntry& e : p.operations) bytes += e.bytes;
  return bytes;
}

/// What bounds the step, what it loses and to whom, and how it compares with the smallest number of streams.
std::string explain(const ProfilePoint& p, const ProfilePoint& first) {
  const double percent = 100 * p.roofline_seconds / p.seconds;
  std::string text = fmt::format(
      "{} {:.0f}% of the roofline: ",
      p.prefill ? "Prefill reaches"
                : fmt::format("{} stream{} reach{}", p.streams, p.streams == 1 ? "" : "s", p.streams == 1 ? "es" : ""),
      percent);
  text += p.memory_bound ? fmt::format("reading {:.1f} MB from memory takes {:.2f} ms, a step {:.2f} ms. ",
                                       total_bytes(p) / 1e6, p.roofline_seconds * 1e3, p.seconds * 1e3)
                         : fmt::format("the arithmetic takes {:.2f} ms, a step {:.2f} ms. ", p.roofline_seconds * 1e3,
                                       p.seconds * 1e3);
  if (p.roofline_seconds > p.seconds) {
    text +=
        "More than 100% means that what is read stays in caches, or that the machine was slower while it was probed. ";
  }
  struct Loss {
    std::string what;
    double seconds;
  };
  std::vector<Loss> losses{{"threads waiting for the last job of a list", p.wait_seconds},
                           {"planning on one thread", p.serial_seconds}};
  for (const ProfileEntry& e : p.operations) losses.push_back({e.name, e.seconds - e.roofline_seconds});
  std::ranges::sort(losses, std::greater(), &Loss::seconds);
  std::erase_if(losses, [&](const Loss& l) { return l.seconds < 0.005 * p.seconds; });
  if (losses.size() > 3) losses.resize(3);
  for (size_t i = 0; i < losses.size(); ++i) {
    const char* before = i == 0 ? "Most is lost in " : i + 1 == losses.size() ? " and " : ", ";
    text += fmt::format("{}{} ({:.2f} ms)", before, losses[i].what, losses[i].seconds * 1e3);
  }
  if (!losses.empty()) text += ".";
  if (p.prefill || p.streams == first.streams) return text;
  const double factor = p.streams / static_cast<double>(first.streams);
  const double bytes = total_bytes(p) / total_bytes(first);
  text += fmt::format(
      " {:.3g} times the streams read {:.2f} times the bytes ({:.1f} distinct experts a layer instead of {:.1f}), so "
      "memory alone would allow {:.2f} times the tokens a second; {:.2f} were measured.",
      factor, bytes, p.distinct_experts, first.distinct_experts, factor / bytes, factor * first.seconds / p.seconds);
  return text;
}

Expected<void> check_profile_options(const ProfileOptions& o) {
  const auto in_range = [](std::string_view what, int64_t value, int64_t limit) -> Expected<void> {
    if (value >= 1 && value <= limit) return {};
    return fail(ErrorCode::invalid_argument, "{} is {}; expected 1 to {}", what, value, limit);
  };
  COHORT_TRY(in_range("the prompt length (--npp)", o.prompt_tokens, 1 << 24));
  COHORT_TRY(in_range("the number of steps (--ntg)", o.steps, 1 << 24));
  COHORT_TRY(in_range("the number of repeats (-r)", o.repeats, 10000));
  if (o.streams.empty()) return fail(ErrorCode::invalid_argument, "no number of streams was given (-B)");
  for (const int32_t b : o.streams) COHORT_TRY(in_range("a number of streams (-B)", b, 65536));
  return {};
}

}  // namespace

Expected<ProfileReport> profile_steps(const ProfileOptions& options,
                                      const std::function<void(const std::string&)>& progress) {
  COHORT_TRY(check_profile_options(options));
  ProfileOptions o = options;
  const int32_t most = std::ranges::max(o.streams);
  o.engine.max_streams = most;
  COHORT_TRY(check_measured_options(o.engine));
  int32_t context = fed_positions(o.prompt_tokens, o.steps, 0);
  COHORT_ASSIGN(auto model, Model::load(o.engine.model, context));
  const int32_t canvas = model->config().diffusion.canvas_length;
  if (canvas > 0) {  // which takes more positions
    context = fed_positions(o.prompt_tokens, o.steps, canvas);
    COHORT_ASSIGN(model, Model::load(o.engine.model, context));
  }
  o.engine.kv_positions = int64_t{most} * pages_for(context) * kPagePositions;
  const Program& program = model->program();
  ProfileReport report;
  report.model = model->config().name;
  report.type = main_type(program);
  report.prompt_tokens = o.prompt_tokens;
  report.steps = o.steps;
  if (o.engine.device.starts_with("cuda")) {
    COHORT_ASSIGN(const OpenedBackend opened, open_backend(*model, o.engine, {}));
    auto* device = dynamic_cast<CudaBackend*>(opened.backend.get());
    if (device == nullptr) {
      return fail(ErrorCode::unsupported, "the device cannot be profiled with --backend {}; use --backend fast",
                  o.engine.backend);
    }
    report.device = device->description();
    report.bandwidth = device->read_bandwidth();
    for (const int32_t count : o.streams) {
      if (progress) progress(counted(count, "stream"));
      COHORT_ASSIGN(ProfilePoint point, device_point(*device, program, o, report.bandwidth, canvas, count, false));
      report.points.push_back(std::move(point));
    }
    if (progress) progress("prefill");
    COHORT_ASSIGN(ProfilePoint prefill, device_point(*device, program, o, report.bandwidth, canvas, 1, true));
    report.points.push_back(std::move(prefill));
    for (ProfilePoint& point : report.points) point.explanation = explain_device(point);
    return report;
  }
  COHORT_ASSIGN(const TensorType kv_type, parse_kv_type(o.engine.kv_type));
  COHORT_ASSIGN(const int32_t pages, choose_pages(o.engine, *model, KvCache::page_bytes(program.cache_layers, kv_type),
                                                  {available_memory(), model->weight_bytes()}));
  COHORT_ASSIGN(auto backend, make_backend(program, o.engine, {}, {}));
  auto* cpu_backend = dynamic_cast<CpuBackend*>(backend.get());
  if (cpu_backend == nullptr) {
    return fail(ErrorCode::unsupported, "only the CPU and CUDA backends can be profiled, not '{}' (use --backend fast)",
                backend->description());
  }
  COHORT_TRY(backend->allocate_cache(kv_type, pages));
  report.device = backend->description();
  report.threads = cpu_backend->threads();
  report.bandwidth = o.bandwidth;
  report.int8_peak = o.int8_peak;
  report.float_peak = o.float_peak;
  Profiler profiler(o, program, canvas, *cpu_backend);
  for (const int32_t count : o.streams) {
    if (progress) progress(counted(count, "stream"));
    COHORT_ASSIGN(ProfilePoint point, profiler.point(count, false));
    report.points.push_back(std::move(point));
  }
  if (progress) progress("prefill");
  COHORT_ASSIGN(ProfilePoint prefill, profiler.point(1, true));
  report.points.push_back(std::move(prefill));
  const ProfilePoint& first = *std::ranges::min_element(
      report.points, {}, [](const ProfilePoint& p) { return p.prefill ? INT32_MAX : p.streams; });
  for (ProfilePoint& point : report.points) point.explanation = explain(point, first);
  return report;
}

}  // namespace cohort
