// Importance matrices: for every matrix of a model, the sums of the squares of the values that enter it, column by
// column, over a calibration text; for stacked experts, of the rows that each expert was given. Encoders weigh the
// error of a column by the mean square of its inputs.
//
// Two files exist in the field. The newer is a GGUF file (general.type "imatrix") with two tensors for each matrix,
// NAME.in_sum2 [cols, experts] and NAME.counts [1, experts], and keys imatrix.datasets, imatrix.chunk_count and
// imatrix.chunk_size. The older, usually *.dat, is a list of (i32 length, name, i32 calls, i32 values, f32 values =
// mean square times calls), then i32 chunks and the name of the text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"

namespace cohort {

/// Of one matrix.
struct Importance {
  int64_t cols = 0, experts = 1;
  std::vector<float> square_sums;  // [experts, cols], each >= 0 and finite
  std::vector<float> counts;       // [experts]: rows that were summed; 0 = the expert was never routed to

  bool routed(int64_t expert) const { return counts[static_cast<size_t>(expert)] > 0; }
  /// Mean squares of one expert. [cols]; zeros when it was never routed to.
  std::vector<float> means(int64_t expert) const;
};

struct ImportanceMatrix {
  std::map<std::string, Importance> entries;  // by tensor name: "blk.0.attn_q.weight"
  std::vector<std::string> datasets;
  uint32_t chunks = 0, chunk_size = 0;  // windows of the text, and tokens of each (0: unknown)

  /// Gate and up of an expert read the same values, whether a file holds them apart or in one tensor
  /// (ffn_gate_up_exps): each form finds the entries of the other.
  const Importance* find(std::string_view name) const;
};

/// Either file, told apart by its first bytes. Errors name the file, the entry and what is wrong: sizes that contradict
/// each other, negative or non-finite sums.
Expected<ImportanceMatrix> read_importance(const std::filesystem::path& path);

enum class ImportanceFormat { gguf, legacy };
/// The format that a file name asks for: legacy for *.dat.
ImportanceFormat importance_format(const std::filesystem::path& path);
/// The older format cannot say how often each expert was used: experts that were never routed to get the mean of one,
/// as in the field.
Expected<void> write_importance(const ImportanceMatrix& matrix, const std::filesystem::path& path,
                                ImportanceFormat format);

}  // namespace cohort
