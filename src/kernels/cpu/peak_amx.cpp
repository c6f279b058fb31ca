#include <immintrin.h>

#include <cstdint>

namespace cohort::cpu {

int32_t int8_peak_amx(int64_t rounds);

// Four accumulators of 16 x 16 sums over 64 values, from four operand tiles.
int32_t int8_peak_amx(int64_t rounds) {
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes_per_row[16] = {};
    uint8_t rows[16] = {};
  } config;
  for (int i = 0; i < 8; ++i) {
    config.bytes_per_row[i] = 64;
    config.rows[i] = 16;
  }
  alignas(64) int8_t operand[1024];
  for (int i = 0; i < 1024; ++i) operand[i] = static_cast<int8_t>(i % 7);
  alignas(64) int32_t sums[256];
  asm volatile("" : : "r"(&config), "r"(operand) : "memory");  // the intrinsics do not say that they read memory
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, operand, 64);
  _tile_loadd(5, operand, 64);
  _tile_loadd(6, operand, 64);
  _tile_loadd(7, operand, 64);
  for (; rounds > 0; --rounds) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  int32_t total = 0;
  _tile_stored(0, sums, 64);
  asm volatile("" : : "r"(sums) : "memory");
  for (int32_t sum : sums) total ^= sum;
  _tile_release();
  return total;
}

}  // namespace cohort::cpu
