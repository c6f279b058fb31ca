// The register tile of attention: C[M rows][16 N] = sum over k in order of a[m][k] * b[k][n], one fma a step.
//
// Registers hold M x N accumulators; each step loads N vectors of b and broadcasts M values of a, so an 8 x 2 tile does
// 16 fma per 10 loads, and 16 chains hide the latency of fma. Single rows go 8 vectors wide for the same reason.
#pragma once

#include <cstdint>

namespace cohort::cpu {

template <class Ops>
struct AttentionTile {
  using F = typename Ops::F;
  static constexpr int kLanes = 16;
  static constexpr int kRows = Ops::kTileRows;

  // c[M][16 N] (+)= a[M][steps] * b[steps][16 N]. `fresh` starts at +0 instead of c. What lies `ahead` values after b
  // is needed next and gets prefetched meanwhile (kAhead), line by line.
  template <class T>
  struct Product {
    const float* a;
    int64_t lda;
    const T* b;
    int64_t ldb, ahead, steps;
    float* c;
    int64_t ldc;
    bool fresh;
  };

  template <class T, bool kAhead, int M, int N>
  static void tile(const Product<T>& x, int64_t vector) {
    const int64_t lda = x.lda, ldb = x.ldb, ldc = x.ldc, steps = x.steps, ahead = x.ahead;
    const float* a = x.a;
    const T* b = x.b + vector * kLanes;
    float* c = x.c + vector * kLanes;
    F sums[M][N];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) sums[m][n] = x.fresh ? Ops::set(0.0F) : Ops::load(c + m * ldc + n * kLanes);
    }
    for (int64_t k = 0; k < steps; ++k, b += ldb) {
      F column[N];
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) column[n] = Ops::load(b + n * kLanes);
      if constexpr (kAhead) {
        constexpr int kLine = 64 / sizeof(T);
#pragma GCC unroll 16
        for (int i = 0; i < N * kLanes; i += kLine) Ops::prefetch(b + ahead + i);
      }
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const F factor = Ops::set(a[m * lda + k]);
#pragma GCC unroll 16
        for (int n = 0; n < N; ++n) sums[m][n] = Ops::fma(factor, column[n], sums[m][n]);
      }
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) Ops::store(c + m * ldc + n * kLanes, sums[m][n]);
    }
  }

  // A tile of any width: as many vectors at once as the registers hold, then one by one.
  template <class T, bool kAhead, int M>
  static void rows_of(const Product<T>& x, int64_t vectors) {
    constexpr int kWide = Ops::kTileVectors / M < 1 ? 1 : Ops::kTileVectors / M > 8 ? 8 : Ops::kTileVectors / M;
    int64_t v = 0;
    for (; v + kWide <= vectors; v += kWide) tile<T, kAhead, M, kWide>(x, v);
    if constexpr (kWide > 2) {
      for (; v + 2 <= vectors; v += 2) tile<T, kAhead, M, 2>(x, v);
    }
    for (; v < vectors; ++v) tile<T, kAhead, M, 1>(x, v);
  }

  template <bool kAhead, class T>
  static void multiply(int64_t rows, const Product<T>& x, int64_t vectors) {
    if (rows == kRows) return rows_of<T, kAhead, kRows>(x, vectors);
    if (rows == 4) return rows_of<T, kAhead, 4>(x, vectors);
    if (rows == 2) return rows_of<T, kAhead, 2>(x, vectors);
    return rows_of<T, kAhead, 1>(x, vectors);
  }
};

}  // namespace cohort::cpu
