// Builds a program: each method appends one operation and returns the value it makes.
#pragma once

#include <string>
#include <utility>

#include "models/config.h"
#include "models/program.h"
#include "models/weight_store.h"

namespace cohort {

class ProgramBuilder {
 public:
  ProgramBuilder(const ModelConfig& config, WeightStore& weights);

  /// Following operations are named "blk.N.<name>" and belong to layer N; -1 = outside of the layers.
  void layer(int32_t index) { layer_ = index; }
  /// Weights by their GGUF name inside the current layer.
  const Weight* matrix(const std::string& name, int64_t rows, int64_t cols, int64_t experts = 1);
  const VectorWeight* vector(const std::string& name, int64_t size);
  const VectorWeight* optional_vector(const std::string& name, int64_t size);
  /// The vector times `factor`.
  const VectorWeight* scaled_vector(const std::string& name, int64_t size, float factor);
  /// Does the current layer have this tensor ("attn_v.weight")?
  bool has(const std::string& name) const;

  ValueId embed(const Weight* table, float scale = 1.0F);
  ValueId rms_norm(const std::string& name, ValueId x, const VectorWeight* weight);
  ValueId head_norm(const std::string& name, ValueId x, const VectorWeight* weight, int32_t head_dim);
  ValueId linear(const std::string& name, ValueId x, const Weight* weight, const VectorWeight* bias = nullptr);
  ValueId rope(const std::string& name, ValueId x, const RopeTable& table, int32_t heads, int32_t head_dim,
               RopePairing pairing);
  ValueId attend(const std::string& name, ValueId q, ValueId k, ValueId v, int32_t heads, int32_t kv_heads,
                 int32_t head_dim, float scale, int32_t window = 0, const VectorWeight* sinks = nullptr);
  ValueId add(const std::string& name, ValueId a, ValueId b);
  ValueId gate(const std::string& name, ValueId gate, ValueId up, Activation activation);
  ValueId route(const std::string& name, ValueId x, const Weight* router, int32_t top_k, bool renormalise,
                const VectorWeight* per_expert_scale = nullptr, const VectorWeight* bias = nullptr);
  ValueId experts(const std::string& name, ValueId x, ValueId routes, const op::Experts& weights);
  ValueId scale(const std::string& name, ValueId x, const VectorWeight* values,
                const VectorWeight* canvas_values = nullptr);
  ValueId softcap(const std::string& name, ValueId x, float cap);
  ValueId gather(ValueId x);
  /// [rows, cols of the table]
  ValueId mix(const std::string& name, const Weight* table, float scale);
  ValueId condition(const std::string& name, ValueId e, ValueId g);

  /// The finished program, or what was missing.
  Expected<Program> finish(ValueId logits);

 private:
  std::string qualified(const std::string& name) const;
  int32_t width(ValueId id) const { return program_.values[static_cast<size_t>(id)].width; }
  ValueId append(const std::string& name, Action action, std::vector<ValueId> inputs, int32_t width,
                 ValueKind kind = ValueKind::floats);

  float eps_;
  WeightStore& weights_;
  Program program_;
  int32_t layer_ = -1;
};

/// Attention of the Llama-like families with its residual: x + Wo attend(rope(norm?(Wq a)), ...). `qk_norm`: RMS norm
/// of each head.
ValueId attention_block(ProgramBuilder& p, const ModelConfig& c, const RopeTable& rope, ValueId x, bool qk_norm);
/// x + down(silu(gate n) * (up n)), n = norm(x).
ValueId dense_block(ProgramBuilder& p, const ModelConfig& c, ValueId x);
/// x + experts(n, route(n)), n = norm(x).
ValueId moe_block(ProgramBuilder& p, const ModelConfig& c, ValueId x);
/// Sampled rows only: head(norm(x)); the head is the embedding when the model ties them.
ValueId head_block(ProgramBuilder& p, const ModelConfig& c, WeightStore& weights, ValueId x);

}  // namespace cohort
