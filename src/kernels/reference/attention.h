// Attention of docs/NUMERICS.md, rule 7, as plainly as it can be written: the oracle of every other attention.
#pragma once

#include "kernels/batch.h"
#include "kv/cache.h"
#include "models/program.h"

namespace cohort::reference {

/// Rounds k and v [rows, kv_heads * head_dim] to the cache type and stores them at each row's position.
void append_kv(const op::Attend& attend, const Batch& batch, const float* k, const float* v, KvCache& cache);

/// q, out [rows, heads * head_dim]. Reads K and V of every row's visible positions, its own included, from the cache;
/// append_kv comes first.
void attend(const op::Attend& attend, const Batch& batch, const float* q, KvCache& cache, float* out);

/// One cached value of a float type, as f32, and its inverse; `index` counts values from `base`.
float load_cached(TensorType type, const std::byte* base, int64_t index);
void store_cached(TensorType type, std::byte* base, int64_t index, float value);

/// q8_0: the scale of at most 32 values, a 127th of the largest rounded to f16 (NaN when one is not finite), and the
/// code of one of them, -127 to 127.
float cache_scale(const float* x, int64_t count);
int8_t scaled_code(float x, float scale);

}  // namespace cohort::reference
