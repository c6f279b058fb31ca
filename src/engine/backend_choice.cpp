#include "engine/backend_choice.h"

#include <algorithm>
#include <charconv>
#include <thread>

#include "base/memory.h"
#include "base/result.h"
#include "engine/expert_counts.h"
#include "engine/limits.h"
#include "engine/tuning_file.h"
#include "kernels/cpu/backend.h"
#include "kernels/cuda/backend.h"
#include "kernels/reference/backend.h"
#include "kv/cache.h"
#include "kv/pages.h"

namespace cohort {
namespace {

/// What is left to the operating system and to buffers when the KV cache takes the rest.
constexpr size_t kReserve = size_t{512} << 20;

Expected<ActivationMode> parse_activations(std::string_view name) {
  if (name == "canonical") return ActivationMode::canonical;
  if (name == "float") return ActivationMode::float_all;
  if (name == "int8") return ActivationMode::int8_all;
  return fail(ErrorCode::invalid_argument,
              "the activations (--activations) are '{}'; expected canonical, float or int8", name);
}

/// The number of the CUDA device, or -1 for the CPU and `auto`.
Expected<int> parse_device(std::string_view name) {
  if (name == "auto" || name == "cpu") return -1;
  if (name == "cuda") return 0;
  constexpr std::string_view kPrefix = "cuda:";
  int index = -1;
  if (name.starts_with(kPrefix)) {
    const std::string_view digits = name.substr(kPrefix.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc() && end == digits.data() + digits.size() && index >= 0) return index;
  }
  return fail(ErrorCode::invalid_argument, "the device (--device) is '{}'; expected auto, cpu, cuda or cuda:N", name);
}

/// What --packed asks for.
Expected<cpu::PackedCache> parse_packed(const EngineOptions& options) {
  using Mode = cpu::PackedCache::Mode;
  cpu::PackedCache cache;
  if (options.packed == "off") return cache;
  cache.mode = options.packed == "auto" ? Mode::automatic : Mode::use;
  cache.file =
      options.packed == "auto" ? cpu::default_packed_file(options.model) : std::filesystem::path(options.packed);
  COHORT_ASSIGN(cache.source, cpu::source_identity(options.model));
  return cache;
}

}  // namespace

int default_threads() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Expected<void> check_options(const EngineOptions& options) {
  const auto in_range = [](std::string_view option, int64_t value, int64_t low, int64_t high) -> Expected<void> {
    if (value >= low && value <= high) return {};
    return fail(ErrorCode::invalid_argument, "{} is {}; expected {} to {}", option, value, low, high);
  };
  COHORT_TRY(in_range("the number of threads (--threads)", options.threads, 0, kMaxThreads));
  COHORT_TRY(in_range("the number of streams (-np)", options.max_streams, 1, kMaxStreams));
  COHORT_TRY(in_range("the number of prompt rows a step (--prefill-rows)", options.prefill_rows, 1, kMaxPrefillRows));
  COHORT_TRY(in_range("the context (-c)", options.context, 0, kMaxContextOption));
  if (options.context == 1) {
    return fail(ErrorCode::invalid_argument,
                "the context (-c) is 1; expected at least 2, one position for a prompt and one for an answer, or 0 for "
                "what the model was made for");
  }
  COHORT_TRY(in_range("the number of KV positions (--kv-positions)", options.kv_positions, 0, kMaxKvPositions));
  if (!(options.priority_aging_s >= 0 && options.priority_aging_s <= kMaxPriorityAging)) {
    return fail(
        ErrorCode::invalid_argument,
        "the seconds of waiting that are worth a level of priority (--priority-aging-s) are {}; expected 0 to {}",
        options.priority_aging_s, kMaxPriorityAging);
  }
  COHORT_TRY(parse_isa(options.isa));
  if (options.packed.empty()) {
    return fail(ErrorCode::invalid_argument,
                "the packed weights (--packed) have no name; expected off, auto or the file that cohort pack wrote");
  }
  COHORT_ASSIGN(const int device, parse_device(options.device));
  if (options.packed != "off" && (options.backend == "reference" || device >= 0)) {
    return fail(ErrorCode::invalid_argument, "packed weights (--packed {}) are only for the CPU's fast backend",
                options.packed);
  }
  COHORT_TRY(in_range("the number of guesses a step (--draft-tokens)", options.draft_tokens, 1, kMaxDraftTokens));
  if (options.draft.empty()) {
    return fail(ErrorCode::invalid_argument,
                "the draft (--draft) has no name; expected off, lookup or a model with the same vocabulary");
  }
  COHORT_ASSIGN(const ActivationMode mode, parse_activations(options.activations));
  if (options.backend != "fast" && options.backend != "reference") {
    return fail(ErrorCode::invalid_argument, "the backend (--backend) is '{}'; expected fast or reference",
                options.backend);
  }
  if (const bool limited = options.device_memory > 0; limited || !options.expert_counts.empty()) {
    if (options.backend == "reference" || options.device == "cpu") {
      return fail(ErrorCode::invalid_argument, "{} is only for CUDA devices (--device cuda)",
                  limited ? "the device's memory (--device-memory)" : "the experts' counts (--expert-counts)");
    }
  }
  COHORT_TRY(in_range("the device's memory (--device-memory)", options.device_memory, 0, int64_t{1} << 62));
  if (mode != ActivationMode::canonical && options.backend != "reference") {
    return fail(ErrorCode::invalid_argument, "--activations {} exists only in the reference (--backend reference)",
                options.activations);
  }
  return {};
}

Expected<void> check_measured_options(const EngineOptions& options) {
  COHORT_TRY(check_options(options));
  if (options.kv_positions == 0) return {};
  return fail(
      ErrorCode::invalid_argument,
      "KV positions (--kv-positions) are given, {}; a measurement reserves what its streams need: leave them out",
      options.kv_positions);
}

Expected<TensorType> parse_kv_type(std::string_view name) {
  for (const TensorType type : {TensorType::f32, TensorType::f16, TensorType::bf16, TensorType::q8_0}) {
    if (type_info(type).name == name) return type;
  }
  return fail(ErrorCode::invalid_argument, "the KV type (--kv-type) is '{}'; expected f32, f16, bf16 or q8_0", name);
}

namespace {

/// KV pages without a look at memory: less is an error, more is useless.
struct WantedPages {
  int64_t least, wanted;
};
WantedPages wanted_pages(const EngineOptions& options, const Model& model) {
  if (options.kv_positions > 0) return {pages_for(options.kv_positions), pages_for(options.kv_positions)};
  return {pages_for(model.context()), int64_t{options.max_streams} * pages_for(model.context())};
}

/// What the canvas of a stream may take in a model of block diffusion: the logits of its rows, and token and
/// probability of all that the step before held possible. 0 for other models.
size_t canvas_bytes(const Model& model) {
  const auto rows = static_cast<size_t>(std::max(0, model.config().diffusion.canvas_length));
  const auto vocabulary = static_cast<size_t>(model.program().vocabulary);
  return rows * vocabulary * (sizeof(float) + sizeof(Mixture::tokens[0]) + sizeof(Mixture::weights[0]));
}

}  // namespace

Expected<int32_t> choose_pages(const EngineOptions& options, const Model& model, size_t page_bytes, CacheRoom room) {
  const int64_t wanted_positions =
      options.kv_positions > 0 ? options.kv_positions : int64_t{options.max_streams} * model.context();
  int64_t wanted = wanted_pages(options, model).wanted;
  const size_t weights = model.weight_bytes();
  const size_t taken = room.reserved ? 0 : room.weights + kReserve;
  size_t usable = room.free > taken ? room.free - taken : 0;
  if (!room.reserved && !room.canvases) {
    const size_t each = canvas_bytes(model), canvases = each * static_cast<size_t>(options.max_streams);
    if (canvases > usable) {
      return fail(ErrorCode::capacity,
                  "the canvases of {} streams may take {} beside {} of weights; {} are free, enough for {}: run fewer "
                  "streams (-np)",
                  options.max_streams, format_bytes(static_cast<double>(canvases)),
                  format_bytes(static_cast<double>(weights)), format_bytes(static_cast<double>(usable)), usable / each);
    }
    usable -= canvases;
  }
  const auto fitting = static_cast<int64_t>(usable / page_bytes);
  const int64_t one_stream = pages_for(model.context());
  if (options.kv_positions > 0 ? wanted > fitting : one_stream > fitting) {
    const auto bytes =
        static_cast<double>(options.kv_positions > 0 ? wanted : one_stream) * static_cast<double>(page_bytes);
    return fail(ErrorCode::capacity,
                "KV memory for {} positions needs {}; {} are free beside {} of weights, enough for {} positions (lower "
                "the context with -c)",
                options.kv_positions > 0 ? wanted_positions : model.context(), format_bytes(bytes),
                format_bytes(static_cast<double>(usable)), format_bytes(static_cast<double>(weights)),
                fitting * kPagePositions);
  }
  // Half of what is free: pages are touched only when streams use them, but other programs live here, too.
  const int64_t most = room.reserved ? fitting : fitting / 2;
  if (options.kv_positions == 0) wanted = std::min(wanted, std::max(one_stream, most));
  return static_cast<int32_t>(std::min<int64_t>(wanted, INT32_MAX / 2));
}

Expected<std::unique_ptr<Backend>> make_backend(const Program& program, const EngineOptions& options, CacheBytes cache,
                                                const ProgressCallback& progress) {
  COHORT_ASSIGN(const ActivationMode mode, parse_activations(options.activations));
  if (options.backend == "reference") {
    return make_reference_backend(program, {options.threads > 0 ? options.threads : default_threads(), mode});
  }
  COHORT_ASSIGN(const int device, parse_device(options.device));
  if (device >= 0) {
    CudaOptions cuda;
    cuda.device = device;
    cuda.threads = options.threads > 0 ? options.threads : default_threads();
    if (progress) cuda.progress = [&](double fraction) { progress("uploading weights", fraction); };
    cuda.memory_limit = static_cast<size_t>(options.device_memory);
    cuda.cache_least = cache.least;
    cuda.cache_wanted = cache.wanted;
    cuda.canvas = cache.canvas;
    cuda.streams = options.max_streams;
    if (!options.expert_counts.empty()) {
      COHORT_ASSIGN(cuda.expert_counts, read_expert_counts(options.expert_counts, program));
      cuda.counts_from = "the counts of " + options.expert_counts.filename().string();
    }
    COHORT_ASSIGN(cuda.host.isa, parse_isa(options.isa));
    cuda.host.tuning = saved_tuning(cuda.host.isa, cuda.threads);
    COHORT_ASSIGN(std::unique_ptr<Backend> backend, make_cuda_backend(program, cuda));
    return backend;
  }
  CpuOptions cpu;
  COHORT_ASSIGN(cpu.isa, parse_isa(options.isa));
  cpu.threads = options.threads;
  cpu.tuning = saved_tuning(cpu.isa, cpu.threads > 0 ? cpu.threads : default_threads());
  COHORT_ASSIGN(cpu.packed, parse_packed(options));
  COHORT_ASSIGN(auto backend, make_cpu_backend(program, cpu, [&](uint64_t done, uint64_t total) {
                  if (progress) progress("packing weights", static_cast<double>(done) / static_cast<double>(total));
                }));
  return std::unique_ptr<Backend>(std::move(backend));
}

namespace {

Expected<OpenedBackend> open_on(const Model& model, const EngineOptions& options, const ProgressCallback& progress) {
  OpenedBackend out;
  COHORT_ASSIGN(const TensorType kv_type, parse_kv_type(options.kv_type));
  const size_t page_bytes = KvCache::page_bytes(model.program().cache_layers, kv_type);
  // What does not fit in memory is refused before the weights are packed; a device says what is free when they are up.
  const bool host = options.backend == "reference" || !options.device.starts_with("cuda");
  if (host) {
    COHORT_ASSIGN(out.pages, choose_pages(options, model, page_bytes, {available_memory(), model.weight_bytes()}));
  }
  const WantedPages pages = wanted_pages(options, model);
  const auto bytes = [&](int64_t count) { return static_cast<size_t>(count) * page_bytes; };
  COHORT_ASSIGN(
      out.backend,
      make_backend(model.program(), options,
                   {bytes(pages.least), bytes(pages.wanted), model.config().diffusion.canvas_length}, progress));
  if (!host) {
    const CacheRoom room{out.backend->free_cache_bytes(), 0, out.backend->cache_is_reserved(), true};
    COHORT_ASSIGN(out.pages, choose_pages(options, model, page_bytes, room));
  }
  COHORT_TRY(out.backend->allocate_cache(kv_type, out.pages));
  return out;
}

}  // namespace

Expected<OpenedBackend> open_backend(const Model& model, const EngineOptions& options,
                                     const ProgressCallback& progress) {
  EngineOptions chosen = options;
  std::string note;
  const bool either =
      options.device == "auto" && options.backend == "fast" && options.isa == "auto" && options.packed == "off";
  if (either) {
    const auto device = describe_cuda_device(0);
    if (device) {
      chosen.device = "cuda";
      auto opened = open_on(model, chosen, progress);
      if (opened) return opened;
      note = "the CUDA device is not used: " + opened.error().message;
      chosen.device = "cpu";
    } else if (device.error().code != ErrorCode::not_found) {
      note = "no CUDA device is used: " + device.error().message;
    }
  }
  COHORT_ASSIGN(OpenedBackend opened, open_on(model, chosen, progress));
  if (note.empty() && options.device == "auto" && (options.device_memory > 0 || !options.expert_counts.empty()))
    note = "no CUDA device is used, so --device-memory and --expert-counts mean nothing";
  opened.note = std::move(note);
  return opened;
}

}  // namespace cohort
