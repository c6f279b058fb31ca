// The range of every option and sampling parameter, in one place: the engine checks it, command lines name it.
#pragma once

#include <cstdint>

namespace cohort {

// EngineOptions
inline constexpr int32_t kMaxThreads = 1024;
inline constexpr int32_t kMaxStreams = 65536;
inline constexpr int32_t kMaxPrefillRows = 1 << 20;
inline constexpr int32_t kMaxDraftTokens = 7;  // windows of 2 to 8 rows
inline constexpr int32_t kMaxContextOption = 1 << 26;
inline constexpr double kMaxPriorityAging = 1e6;              // seconds
inline constexpr int64_t kMaxKvPositions = int64_t{1} << 34;  // page numbers stay 32-bit

// SequenceRequest
inline constexpr int32_t kMaxPriority = 1000;  // either sign

// SamplingParams
inline constexpr double kMaxTemperature = 100;
inline constexpr int32_t kMaxTopK = 1 << 30;
inline constexpr double kMinRepeatPenalty = 1e-3, kMaxRepeatPenalty = 1e3;
inline constexpr double kMaxPenalty = 100;  // frequency and presence, either sign
inline constexpr int32_t kMaxPenaltyWindow = 1 << 30;
inline constexpr int32_t kMaxLogprobs = 100;

// DiffusionRules
inline constexpr int32_t kMaxCanvas = 4096;
inline constexpr int32_t kMaxDiffusionSteps = 10000;
inline constexpr float kMaxEntropy = 1e6F;
inline constexpr float kLeastDiffusionTemperature = 1e-3F;

}  // namespace cohort
