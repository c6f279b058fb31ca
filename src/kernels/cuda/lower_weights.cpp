#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/lowering.h"
#include "kernels/cuda/pack.h"

namespace cohort::cuda {

Expected<const float*> Lowering::vector(const VectorWeight* v) {
  if (v == nullptr) return nullptr;
  auto& known = vectors_[v];
  if (known == nullptr) {
    COHORT_ASSIGN(known, uploader_.upload(v->values, v->name.c_str()));
  }
  return known;
}

Expected<std::pair<const float*, const float*>> Lowering::rope_table(const RopeTable* table) {
  auto& known = ropes_[table];
  if (known.first == nullptr) {
    if (table->cosines.empty()) return fail(ErrorCode::internal, "CUDA: a rotary table was not filled");
    COHORT_ASSIGN(known.first, uploader_.upload(table->cosines, "rotary cosines"));
    COHORT_ASSIGN(known.second, uploader_.upload(table->sines, "rotary sines"));
  }
  return known;
}

Expected<const float*> Lowering::decoded_table(const Weight* table) {
  auto& known = tables_[table];
  if (known == nullptr) {
    const SliceHold held = hold(*table);
    const size_t stride = row_bytes(table->type, table->cols);
    COHORT_ASSIGN(std::byte * memory, uploader_.upload(
                                          table->rows, static_cast<size_t>(table->cols) * sizeof(float),
                                          [&](int64_t i, std::byte* out) {
                                            decode_row(table->type, table->slices[0] + static_cast<size_t>(i) * stride,
                                                       reinterpret_cast<float*>(out), table->cols);
                                          },
                                          table->name.c_str()));
    known = reinterpret_cast<const float*>(memory);
  }
  return known;
}

Expected<const float*> Lowering::packed_floats(const Weight* w) {
  auto& known = router_matrices_[w];
  if (known == nullptr) {
    const SliceHold held = hold(*w);
    const size_t stride = row_bytes(w->type, w->cols);
    COHORT_ASSIGN(std::byte * memory, uploader_.upload(
                                          w->rows, static_cast<size_t>(w->cols) * sizeof(float),
                                          [&](int64_t i, std::byte* out) {
                                            std::vector<float> row(static_cast<size_t>(w->cols));
                                            decode_row(w->type, w->slices[0] + static_cast<size_t>(i) * stride,
                                                       row.data(), w->cols);
                                            auto* packed = reinterpret_cast<float*>(out);
                                            for (size_t k = 0; k < row.size(); ++k)
                                              packed[k / 64 * 64 + k % 16 * 4 + k / 16 % 4] = row[k];
                                          },
                                          w->name.c_str()));
    known = reinterpret_cast<const float*>(memory);
  }
  return known;
}

Expected<void> Lowering::check_quantised(const Weight& w) {
  if (w.cols % 32 != 0) {
    return fail(ErrorCode::unsupported, "CUDA: tensor '{}' has {} columns, not a multiple of 32", w.name, w.cols);
  }
  return {};
}

Expected<DeviceMatrix> Lowering::matrix(const std::vector<const Weight*>& parts, bool interleave) {
  const Weight& first = *parts[0];
  auto& known = matrices_[{parts, interleave}];
  if (known.data != nullptr) return known;
  int64_t rows = 0;
  std::vector<int64_t> first_tile;
  for (const Weight* part : parts) {
    COHORT_TRY(check_quantised(*part));
    first_tile.push_back(rows / kTileRows);
    rows += part->rows;
  }
  DeviceMatrix m;
  m.format = format_of(first.type);
  for (const Weight* part : parts) {
    if (part->type != first.type) m.format = Format::generic;
    m.two_groups |= has_two_groups(part->type);
  }
  m.geometry = make_geometry(m.format, interleave ? first.rows : rows, static_cast<int>(first.cols / 32),
                             interleave ? static_cast<int>(parts.size()) : 1);
  const Geometry g = m.geometry;
  std::vector<SliceHold> holds;
  for (const Weight* part : parts) holds.push_back(hold(*part));
  const auto fill = [&](int64_t i, std::byte* out) {
    const int64_t expert = i / g.tiles, tile = i % g.tiles;
    if (interleave) {
      const auto n = static_cast<int64_t>(parts.size());
      pack_tile(m.format, *parts[static_cast<size_t>(tile % n)], expert, tile / n, out);
      return;
    }
    size_t part = parts.size() - 1;
    while (first_tile[part] > tile) --part;
    pack_tile(m.format, *parts[part], expert, tile - first_tile[part], out);
  };
  COHORT_ASSIGN(m.data,
                uploader_.upload(first.experts * g.tiles, static_cast<size_t>(g.tile_bytes), fill, first.name.c_str()));
  known = m;
  return m;
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
