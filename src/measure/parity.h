// Bit parity: do the logits of a stream depend on anything but the stream? Every way of running it (company, chunks,
// windows, shared pages, threads, instruction sets, the reference) is compared, bit for bit, with the stream alone, row
// by row; and the pass over the experts, for any pair of types, with the reference and with double precision.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/engine.h"
#include "measure/expert_lab.h"

namespace cohort {

struct ParityOptions {
  EngineOptions engine;  // threads and isa: of the run that the others are compared with
  int32_t streams = 4;
  int32_t tokens = 80;            // of each stream
  bool reference = true;          // also compare with the scalar oracle, which takes a second per 10^9 multiply-adds
  int32_t reference_tokens = 12;  // of each stream
};

/// One way of running the streams.
struct ParityVariant {
  std::string name;
  int64_t rows = 0;       // whose logits were compared
  int64_t differing = 0;  // of those
  std::string first;      // the first difference, in words; empty when there is none
};

struct ParityReport {
  std::string model, type, device;
  int32_t streams = 0, tokens = 0;
  int32_t canvas = 0;  // of block diffusion: its canvases are not compared, only rows that are read
  std::vector<ParityVariant> variants;
  bool equal() const;
};

/// Streams are fed random tokens (measure/fed_streams.h). Errors: options out of range, a model that cannot be loaded,
/// a device that fails; differences are no errors.
Expected<ParityReport> check_parity(const ParityOptions& options,
                                    const std::function<void(const std::string&)>& progress = {});

struct ExpertParityOptions {
  std::vector<std::string> gate_up{"q4_0"}, down{"q4_0"};  // every pair is checked
  int64_t hidden = 256, inner = 256, experts = 16, top_k = 4;
  std::vector<int32_t> tokens{1, 2, 3, 5, 9, 17, 40};
  std::vector<double> shares{-1};  // of the routes that repeat an expert (routes_with_share); below 0: random experts
  std::vector<int32_t> threads{1, 2, 3};
};

struct ExpertParityPair {
  std::string gate_up, down;
  int64_t values = 0, differing = 0;  // compared with the reference, over instruction sets, threads and tokens
  std::string first;
  /// Of the reference against double precision on the decoded weights without int8 activations:
  /// |difference| / |values|, as norms over all tokens.
  double error = 0;
};

/// Rounding activations to int8 (rule 2, twice) costs about one percent; more than this is a wrong result.
inline constexpr double kExpertErrorLimit = 0.03;

struct ExpertParityReport {
  ExpertParityOptions options;
  std::vector<ExpertParityPair> pairs;
  bool equal() const;  // bits equal everywhere and every error below the limit
};

/// Errors: check_shape(), counts out of range.
Expected<ExpertParityReport> check_expert_parity(const ExpertParityOptions& options,
                                                 const std::function<void(const std::string&)>& progress = {});

std::string to_text(const ParityReport& report);
std::string to_json(const ParityReport& report);
std::string to_text(const ExpertParityReport& report);
std::string to_json(const ExpertParityReport& report);

}  // namespace cohort
