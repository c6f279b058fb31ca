// From options to a backend and a number of KV pages.
#pragma once

#include <memory>
#include <string>

#include "cohort/engine.h"
#include "kernels/backend.h"
#include "models/model.h"

namespace cohort {

/// One per core that this process may use.
int default_threads();

/// Refuses counts that are out of range; the message names the option.
Expected<void> check_options(const EngineOptions& options);
/// The same for measurements, which reserve the KV positions that they need: none may be given.
Expected<void> check_measured_options(const EngineOptions& options);

/// f32, f16, bf16 or q8_0.
Expected<TensorType> parse_kv_type(std::string_view name);

/// What holds weights and cache: bytes that are free there, and how many of them the weights will still take.
struct CacheRoom {
  size_t free = 0, weights = 0;
  bool reserved = false;  // all of it is the cache's; else something is left to others
  bool canvases = false;  // the memory of canvases was taken before
};

/// KV pages for options.kv_positions, or max_streams times the context, at most what free memory holds beside the
/// canvases of max_streams streams (block diffusion). Capacity error that says how many positions fit when not even one
/// stream's do, or how many streams' canvases.
Expected<int32_t> choose_pages(const EngineOptions& options, const Model& model, size_t page_bytes, CacheRoom room);

/// Bytes of the KV cache that will be allocated, and rows of each stream's canvas (0: the model has none), for a
/// backend that has to divide its memory before.
struct CacheBytes {
  size_t least = 0, wanted = 0;
  int32_t canvas = 0;
};

/// options.device `auto` is the CPU here.
Expected<std::unique_ptr<Backend>> make_backend(const Program& program, const EngineOptions& options, CacheBytes cache,
                                                const ProgressCallback& progress);

struct OpenedBackend {
  std::unique_ptr<Backend> backend;
  int32_t pages = 0;
  std::string note;  // why `auto` did not take the device that is there; else empty
};

/// A backend with its weights loaded and its cache allocated. `auto` takes the first CUDA device when there is one that
/// can run this model in these options, else the CPU.
Expected<OpenedBackend> open_backend(const Model& model, const EngineOptions& options,
                                     const ProgressCallback& progress);

}  // namespace cohort
