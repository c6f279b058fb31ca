#include <algorithm>
#include <bit>
#include <cmath>

#include "base/result.h"
#include "kernels/reference/ops.h"
#include "measure/parity.h"
#include "measure/synth_blocks.h"

namespace cohort {
namespace {

/// Weighted sum over a row's slots in double precision, on decoded weights and float activations.
void experts_in_double(const op::Experts& experts, std::span<const reference::RouteSlot> slots, const float* x,
                       double* y) {
  const int64_t hidden = experts.gate->cols, inner = experts.gate->rows;
  std::vector<float> row(static_cast<size_t>(std::max(hidden, inner)));
  const auto multiply = [&](const Weight& w, int32_t expert, auto input, std::vector<double>& out) {
    out.resize(static_cast<size_t>(w.rows));
    for (int64_t r = 0; r < w.rows; ++r) {
      decode_row(w.type, w.slices[static_cast<size_t>(expert)] + static_cast<size_t>(r) * row_bytes(w.type, w.cols),
                 row.data(), w.cols);
      double sum = 0;
      for (int64_t k = 0; k < w.cols; ++k)
        sum += static_cast<double>(row[static_cast<size_t>(k)]) * static_cast<double>(input[static_cast<size_t>(k)]);
      out[static_cast<size_t>(r)] = sum;
    }
  };
  std::fill_n(y, hidden, 0.0);
  std::vector<double> gate, up, down;
  for (const reference::RouteSlot& slot : slots) {
    multiply(*experts.gate, slot.expert, x, gate);
    multiply(*experts.up, slot.expert, x, up);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    multiply(*experts.down, slot.expert, gate, down);
    for (int64_t i = 0; i < hidden; ++i) y[i] += static_cast<double>(slot.weight) * down[static_cast<size_t>(i)];
  }
}

/// One pair of types: random rows and routes, what they should give, and every way of computing it.
class PairCheck {
 public:
  PairCheck(const ExpertParityOptions& options, const ExpertWeights& weights) : o_(options), weights_(weights) {
    rows_ = *std::ranges::max_element(o_.tokens);
    x_.resize(static_cast<size_t>(rows_ * o_.hidden));
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = 2 * (static_cast<float>(random_word(11, i) >> 40) * 0x1p-23F - 1.0F);
    for (size_t i = 0; i < static_cast<size_t>(rows_ * o_.top_k); ++i)
      slots_.push_back(static_cast<float>(random_word(12, i) >> 40) * 0x1p-24F);
    expected_.resize(x_.size());
  }

  Expected<ExpertParityPair> run() {
    ExpertParityPair pair;
    pair.gate_up = weights_.shape().gate_up;
    pair.down = weights_.shape().down;
    for (const double share : o_.shares) {
      routes_ = routes_with_share(rows_, o_.experts, o_.top_k, share, 5);
      pair.error = std::max(pair.error, compute_expected());
      COHORT_TRY(compare_all(share, pair));
    }
    return pair;
  }

 private:
  Expected<void> compare_all(double share, ExpertParityPair& pair) {
    for (const Isa isa : available_isas()) {
      for (const int32_t threads : o_.threads) {
        COHORT_ASSIGN(auto runner, ExpertRunner::create(weights_, isa, threads));
        for (const int32_t tokens : o_.tokens) {
          const auto part = [tokens](auto& v, int64_t width) {
            return std::span(v).first(static_cast<size_t>(tokens * width));
          };
          std::vector<float> y(static_cast<size_t>(tokens * o_.hidden), NAN);
          runner->run(0, part(x_, o_.hidden), part(routes_, o_.top_k), part(slots_, o_.top_k), y);
          const std::string routes = share < 0 ? "random experts" : fmt::format("share {}", share);
          compare(y, fmt::format("{}, {} threads, {} tokens, {}", isa_name(isa), threads, tokens, routes), pair);
        }
      }
    }
    return {};
  }

  /// Returns the reference's relative error.
  double compute_expected() {
    double difference = 0, norm = 0;
    std::vector<double> exact(static_cast<size_t>(o_.hidden));
    for (int64_t row = 0; row < rows_; ++row) {
      std::vector<reference::RouteSlot> slots;
      for (int64_t k = row * o_.top_k; k < (row + 1) * o_.top_k; ++k)
        slots.push_back({routes_[static_cast<size_t>(k)], slots_[static_cast<size_t>(k)]});
      float* y = expected_.data() + row * o_.hidden;
      const float* x = x_.data() + row * o_.hidden;
      reference::experts_row(weights_.layer(0), slots, ActivationMode::canonical, x, y);
      experts_in_double(weights_.layer(0), slots, x, exact.data());
      for (size_t i = 0; i < exact.size(); ++i) {
        difference += (static_cast<double>(y[i]) - exact[i]) * (static_cast<double>(y[i]) - exact[i]);
        norm += exact[i] * exact[i];
      }
    }
    return norm > 0 ? std::sqrt(difference / norm) : 0;
  }

  void compare(const std::vector<float>& y, const std::string& how, ExpertParityPair& pair) const {
    for (size_t i = 0; i < y.size(); ++i) {
      ++pair.values;
      if (std::bit_cast<uint32_t>(y[i]) == std::bit_cast<uint32_t>(expected_[i])) continue;
      if (pair.differing++ == 0) {
        const auto width = static_cast<size_t>(o_.hidden);
        pair.first =
            fmt::format("{}: token {}, value {}: {} instead of {}", how, i / width, i % width, y[i], expected_[i]);
      }
    }
  }

  const ExpertParityOptions& o_;
  const ExpertWeights& weights_;
  int64_t rows_ = 0;
  std::vector<float> x_, slots_, expected_;
  std::vector<int32_t> routes_;
};

}  // namespace

bool ExpertParityReport::equal() const {
  return std::ranges::all_of(pairs,
                             [](const ExpertParityPair& p) { return p.differing == 0 && p.error < kExpertErrorLimit; });
}

Expected<ExpertParityReport> check_expert_parity(const ExpertParityOptions& options,
                                                 const std::function<void(const std::string&)>& progress) {
  const auto each_in_range = [](std::string_view what, const std::vector<int32_t>& values,
                                int32_t limit) -> Expected<void> {
    if (values.empty()) return fail(ErrorCode::invalid_argument, "{}: none was given", what);
    for (const int32_t value : values) {
      if (value < 1 || value > limit)
        return fail(ErrorCode::invalid_argument, "{}: {}; expected 1 to {}", what, value, limit);
    }
    return {};
  };
  COHORT_TRY(each_in_range("--tokens", options.tokens, 4096));
  COHORT_TRY(each_in_range("--threads", options.threads, 1024));
  if (options.shares.empty()) return fail(ErrorCode::invalid_argument, "--share: none was given");
  ExpertParityReport report{options, {}};
  for (const std::string& gate_up : options.gate_up) {
    for (const std::string& down : options.down) {
      if (progress) progress(fmt::format("{} with {}", gate_up, down));
      const ExpertShape shape = {gate_up, down, options.hidden, options.inner, options.experts, options.top_k, 1};
      COHORT_ASSIGN(const ExpertWeights weights, ExpertWeights::create(shape, 1, 1));
      COHORT_ASSIGN(ExpertParityPair pair, PairCheck(options, weights).run());
      report.pairs.push_back(std::move(pair));
    }
  }
  return report;
}

}  // namespace cohort
