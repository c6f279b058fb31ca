// What a model needs to run: its program, and memory at a context and a number of streams.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cohort/error.h"

namespace cohort {

struct RunSummary {
  std::string program;  // to_text(), empty unless asked for
  int32_t context = 0, trained_context = 0, streams = 0;
  std::string kv_type;
  size_t weight_bytes = 0, kv_bytes_per_position = 0, kv_bytes = 0, available = 0;
  double operations_per_token = 0;  // multiply-adds counted as 2, without attention over the cache
  double bytes_per_token = 0;       // weights that one stream's step reads
};

/// Loads the model's program (weights stay mapped, nothing is packed). context 0: what the model was made for.
Expected<RunSummary> summarise_run(const std::filesystem::path& path, int32_t context, int32_t streams,
                                   const std::string& kv_type, bool program);

std::string to_text(const RunSummary& summary);
nlohmann::ordered_json to_json(const RunSummary& summary);

}  // namespace cohort
