#include "measure/inspect_program.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/counted.h"
#include "base/memory.h"
#include "base/result.h"
#include "engine/backend_choice.h"
#include "engine/limits.h"
#include "kv/pages.h"
#include "models/model.h"
#include "numerics/version.h"

namespace cohort {

Expected<RunSummary> summarise_run(const std::filesystem::path& path, int32_t context, int32_t streams,
                                   const std::string& kv_type, bool program) {
  COHORT_ASSIGN(const TensorType type, parse_kv_type(kv_type));
  COHORT_ASSIGN(const auto model, Model::load(path, context));
  RunSummary out;
  if (program) out.program = to_text(model->program());
  out.context = model->context();
  out.trained_context = model->config().context;
  out.streams = streams;
  out.kv_type = kv_type;
  out.weight_bytes = model->weight_bytes();
  const size_t page = KvCache::page_bytes(model->program().cache_layers, type);
  out.kv_bytes_per_position = page / kPagePositions;
  out.kv_bytes = page * static_cast<size_t>(pages_for(out.context)) * static_cast<size_t>(streams);
  out.available = available_memory();
  for (const Op& op : model->program().ops) {
    const OpCost cost =
        cost_of(model->program(), op,
                {.rows = 1, .sampled = 1, .distinct_experts = static_cast<double>(model->config().top_k)});
    out.operations_per_token += cost.operations;
    out.bytes_per_token += cost.weight_bytes;
  }
  return out;
}

std::string to_text(const RunSummary& s) {
  const auto bytes = [](size_t value) { return format_bytes(static_cast<double>(value)); };
  std::string out = s.program.empty() ? std::string() : s.program + "\n";
  out += fmt::format(
      "one token      {:.2f} G operations, {} of weights read (one stream, attention over the cache not counted)\n",
      s.operations_per_token / 1e9, bytes(static_cast<size_t>(s.bytes_per_token)));
  out += fmt::format(
      "memory         {} of weights + {} of KV cache ({} of {} positions, {} each in {}) = {}; {} are free\n",
      bytes(s.weight_bytes), bytes(s.kv_bytes), counted(s.streams, "stream"), s.context, bytes(s.kv_bytes_per_position),
      s.kv_type, bytes(s.weight_bytes + s.kv_bytes), bytes(s.available));
  if (s.weight_bytes + s.kv_bytes <= s.available) {
    const size_t each = std::max<size_t>(s.kv_bytes / static_cast<size_t>(s.streams), 1);
    const size_t fit = std::min((s.available - s.weight_bytes) / each, static_cast<size_t>(kMaxStreams));
    out += fmt::format("runs here      yes: the KV cache of {} of this context fits beside the weights\n",
                       counted(static_cast<int64_t>(fit), "stream"));
  } else {
    out += fmt::format("runs here      {} short of memory: fewer streams (--np), a shorter context (-c)\n",
                       bytes(s.weight_bytes + s.kv_bytes - s.available));
  }
  out += fmt::format("context        {} of {} positions\nnumerics       version {}\n", s.context, s.trained_context,
                     numerics::kNumericsVersion);
  return out;
}

nlohmann::ordered_json to_json(const RunSummary& s) {
  nlohmann::ordered_json out{{"context", s.context},
                             {"trained_context", s.trained_context},
                             {"streams", s.streams},
                             {"kv_type", s.kv_type},
                             {"weight_bytes", s.weight_bytes},
                             {"kv_bytes_per_position", s.kv_bytes_per_position},
                             {"kv_bytes", s.kv_bytes},
                             {"available_bytes", s.available},
                             {"operations_per_token", s.operations_per_token},
                             {"weight_bytes_per_token", s.bytes_per_token},
                             {"numerics_version", numerics::kNumericsVersion}};
  if (!s.program.empty()) out["program"] = s.program;
  return out;
}

}  // namespace cohort
