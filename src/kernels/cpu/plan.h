// A program compiled into stages. A stage is one flat job list with one barrier after it; every operation lands in the
// earliest stage of its kind that its inputs allow, so linears that share an input, or that merely do not depend on
// each other, are one list, and all row-wise operations between two matrices are one walk over the rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/weight_memory.h"
#include "models/program.h"

namespace cohort::cpu {

/// An operation on one row that needs nothing of other rows.
struct RowItem {
  enum class Kind : uint8_t {
    embed,
    rms_norm,
    rope,
    add,
    gate,
    scale,
    softcap,
    gather,
    condition,
    append,
    quantise,
    choose
  };
  Kind kind;
  const Op* op;           // what it belongs to
  ValueId input, output;  // quantise: the value; choose: the logits and the routes; append: see the op
};

struct LinearItem {
  const Op* op;
  const Matrix* matrix;
  const VectorWeight* bias;
  ValueId input, output;
};

struct Stage {
  enum class Kind : uint8_t { rows, linear, attend, experts, mix };
  Kind kind;
  Extent extent = Extent::rows;
  std::vector<RowItem> rows;
  std::vector<LinearItem> linears;
  const Op* op = nullptr;  // attend, experts, mix
};

/// Where a value lives.
struct ValuePlace {
  int32_t floats = -1;  // float buffer, or -1: routes, or never needed
  int32_t quant = -1;   // int8 buffer, or -1: no quantised matrix reads it
  SumMask sums = 0;
  int32_t width = 0;
  Extent extent = Extent::rows;
  ValueKind kind = ValueKind::floats;
};

/// The float buffer of the logits is the caller's memory.
inline constexpr int32_t kCallersBuffer = -2;

struct QuantBufferSpec {
  int32_t width;
  SumMask sums;
};

struct Plan {
  std::vector<Stage> stages;
  std::vector<ValuePlace> values;       // the program's, then the router logits
  std::vector<int32_t> float_widths;    // floats per row of each float buffer
  std::vector<QuantBufferSpec> quants;  // int8 buffers
};

/// Compiles `program`; the plan refers to its ops and to the matrices of `weights`. `keep_inputs`: the floats that
/// enter a matrix live until it has run, although only their int8 form is multiplied.
Plan compile(const Program& program, const WeightMemory& weights, bool keep_inputs = false);

/// One line per stage: what is fused into it.
std::string to_text(const Program& program, const Plan& plan);

}  // namespace cohort::cpu
