// Collecting an importance matrix: a calibration text through a model whose backend shows what enters its matrices.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cohort/engine.h"
#include "formats/imatrix/imatrix.h"

namespace cohort {

struct ImportanceOptions {
  EngineOptions engine;  // context: tokens of a window (0: 512); max_streams: windows of one batch
  std::filesystem::path text;
  int32_t windows = 0;  // at most so many; 0: all
  bool head = false;    // the head's input, too (most encoders keep the head wide, so it is seldom needed)
  std::function<void(int32_t done, int32_t total)> progress;
  std::function<bool()> cancelled;
};

/// Experts of one matrix that no token was routed to.
struct UnroutedExperts {
  std::string tensor;
  std::vector<int64_t> experts;
};

struct ImportanceReport {
  ImportanceMatrix matrix;
  std::string model, device;
  int32_t windows = 0, context = 0;
  int64_t tokens = 0;
  double seconds = 0;
  std::vector<UnroutedExperts> unrouted;  // one entry for each layer that has any, named by its down matrix
  double least_rows = 0;                  // that an expert which was routed to has seen
};

/// Errors: those of loading; unsupported when the backend cannot show its inputs; invalid_argument for a text shorter
/// than one window; cancelled.
Expected<ImportanceReport> collect_importance(const ImportanceOptions& options, const ProgressCallback& loading = {});

std::string to_text(const ImportanceReport& report);
std::string to_json(const ImportanceReport& report);

}  // namespace cohort
