// Code books of the IQ formats. An entry packs its values as bytes, the first value in the lowest byte.
#pragma once

#include <cstdint>

namespace cohort::quant {

extern const uint64_t iq2xxs_grid[256];  // 8 magnitudes of 8, 25, 43
extern const uint64_t iq2xs_grid[512];
extern const uint64_t iq2s_grid[1024];
extern const uint32_t iq3xxs_grid[256];  // 4 magnitudes of 4, 12, 20, 28, 36, 44, 52, 62
extern const uint32_t iq3s_grid[512];    // 4 odd magnitudes of 1 to 15
extern const uint64_t iq1s_grid[2048];   // 8 values of -1, 0, 1 (as int8)

/// IQ4_NL and IQ4_XS: the value of each 4-bit code.
inline constexpr int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// MXFP4 and NVFP4: twice the value of each E2M1 code, so that it is whole.
inline constexpr int8_t fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace cohort::quant
