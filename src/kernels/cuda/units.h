// Rows of canvases in the units of attention (Step::units).
#pragma once

#include "kernels/cuda/layout.h"

namespace cohort::cuda {

/// The word kUnitRows: the unit's rows, and how many positions past kUnitPosition they see. That is 0 for all rows but
/// those of a canvas: their position is the canvas's first one, from which a window counts back, and they see the
/// canvas to its end. They are alone in their units.
inline constexpr int kUnitAheadShift = 8;
COHORT_HD constexpr int32_t unit_rows_word(int32_t rows, int32_t ahead) {
  return rows | ahead << kUnitAheadShift;
}
COHORT_HD constexpr int32_t unit_ahead(int32_t word) {
  return word >> kUnitAheadShift;
}

}  // namespace cohort::cuda
