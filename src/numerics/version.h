#pragma once

namespace cohort::numerics {

/// The version of docs/NUMERICS.md that this build computes. Any change of any result bit bumps it.
inline constexpr int kNumericsVersion = 1;

}  // namespace cohort::numerics
