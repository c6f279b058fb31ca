// Programs with random weights for the device check: small ones for bits, a real shape for speed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/program.h"

namespace cohort::device_check {

struct Shape {
  const char* name;
  int32_t layers, hidden, heads, kv_heads, head_dim, inner, experts, top_k, vocabulary;
  int32_t context;
  int32_t window = 0;  // of every second layer
  bool dense = false;  // a gated MLP instead of experts
  bool adjacent_rope = false;
  bool biases = false;
  bool gpt_oss = false;  // sinks, biases of router and experts, clamped gates; with `biases`
};

struct Types {
  TensorType attention, value, gate_up, down, head;  // value: attn_v
};

/// A program, everything it points to, and its random weights. `shared`: all matrices take their bytes from one pool
/// (the device still holds them apart), so that a large model needs little host memory.
class SyntheticModel {
 public:
  SyntheticModel(const Shape& shape, const Types& types, uint32_t seed, bool shared);
  const Program& program() const { return program_; }

 private:
  const Weight* matrix(const std::string& name, TensorType type, int64_t rows, int64_t cols, int64_t experts = 1);
  const VectorWeight* vector(const std::string& name, int64_t size, float around);
  ValueId value(const std::string& name, int32_t width, Extent extent, ValueKind kind = ValueKind::floats);
  ValueId add(const std::string& name, Action action, std::vector<ValueId> inputs, int32_t width,
              ValueKind kind = ValueKind::floats, Extent extent = Extent::rows);
  void fill(TensorType type, int64_t cols, std::byte* bytes, int64_t blocks);

  uint32_t seed_;
  bool shared_;
  uint64_t state_;
  std::vector<std::unique_ptr<Weight>> weights_;
  std::vector<std::unique_ptr<VectorWeight>> vectors_;
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<std::pair<TensorType, size_t>> pools_;  // index into bytes_
  RopeTable rope_;
  Program program_;
  int32_t layer_ = -1;
};

}  // namespace cohort::device_check
