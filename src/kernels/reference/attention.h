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

/// One cached value, as f32, and its inverse; `index` counts values from `base`.
float load_cached(TensorType type, const std::byte* base, int64_t index);
void store_cached(TensorType type, std::byte* base, int64_t index, float value);

}  // namespace cohort::reference
