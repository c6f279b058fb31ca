// The search behind the encoders of IQ1, IQ2 and IQ3: a scale for each part and, for every group of 8 or 4 values, the
// entry of the grid with the least weighted squared error.
//
// The error of an entry is a sum over its values, and a value takes one of a few levels. So the costs of all
// combinations of the first half and of the second half of a group are tabled (81 or 64 each) and an entry costs two
// look-ups. Entries lie in lists by their first half; a list whose first half alone costs too much is skipped, which
// with a good entry to start from leaves a small part of the grid.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "quant/search.h"

namespace cohort::quant {

/// A grid with Dims values an entry, each one of Levels levels, arranged for the search.
template <int Dims, int Levels>
class Codebook {
 public:
  static constexpr int half = Dims / 2;
  static constexpr int quarter = half == 4 ? Levels * Levels : Levels;  // combinations of a quarter of a group
  static constexpr int combinations = quarter * quarter;
  using Costs = float[Dims][Levels];

  /// `grid` holds `count` entries with the values as bytes (the first lowest); `bytes` the byte of each level.
  template <class Word>
  Codebook(const Word* grid, int count, const std::array<uint8_t, Levels>& bytes)
      : entries_(static_cast<size_t>(count)) {
    for (int i = 0; i < count; ++i) {
      Entry& entry = entries_[static_cast<size_t>(i)];
      int factor = 1;
      for (int j = 0; j < Dims; ++j) {
        const auto byte = static_cast<uint8_t>(grid[i] >> (8 * j));
        entry.level[j] = static_cast<uint8_t>(std::find(bytes.begin(), bytes.end(), byte) - bytes.begin());
        factor = j == half ? 1 : factor;
        (j < half ? entry.low : entry.high) =
            static_cast<uint16_t>((j < half ? entry.low : entry.high) + factor * entry.level[j]);
        factor *= Levels;
      }
    }
    for (int low = 0; low < combinations; ++low) {
      start_[static_cast<size_t>(low)] = static_cast<uint16_t>(order_.size());
      for (int i = 0; i < count; ++i) {
        if (entries_[static_cast<size_t>(i)].low == low) {
          order_.push_back({entries_[static_cast<size_t>(i)].high, static_cast<uint16_t>(i)});
        }
      }
    }
    start_[combinations] = static_cast<uint16_t>(order_.size());
  }

  const uint8_t* levels_of(int index) const { return entries_[static_cast<size_t>(index)].level; }

  /// The entry of least cost; `index` holds a guess on entry. Returns the cost.
  float nearest(const Costs& costs, uint16_t& index) const {
    Halves low(costs);
    Halves high(costs + half);
    float high_sums[combinations];
    for (int o = 0; o < quarter; ++o) {
      for (int i = 0; i < quarter; ++i) {
        high_sums[o * quarter + i] = high.inner[i] + high.outer[o];
      }
    }
    // Rounding is monotonic, so the sum of least parts is a bound of every sum of parts in the same order of additions.
    const float least_high = least(high.inner) + least(high.outer);
    const float least_inner = least(low.inner);
    const Entry& guess = entries_[index];
    float best = low.inner[guess.low % quarter] + low.outer[guess.low / quarter] + high_sums[guess.high];
    for (int o = 0; o < quarter; ++o) {
      if (!(least_inner + low.outer[o] + least_high < best)) {
        continue;
      }
      for (int i = 0; i < quarter; ++i) {
        const float low_sum = low.inner[i] + low.outer[o];
        if (!(low_sum + least_high < best)) {
          continue;
        }
        const auto list = static_cast<size_t>(o * quarter + i);
        for (size_t k = start_[list]; k < start_[list + 1]; ++k) {
          const float cost = low_sum + high_sums[order_[k].high];
          if (cost < best) {
            best = cost;
            index = order_[k].index;
          }
        }
      }
    }
    return best;
  }

 private:
  struct Entry {
    uint8_t level[Dims] = {};
    uint16_t low = 0;
    uint16_t high = 0;
  };
  struct Listed {
    uint16_t high;
    uint16_t index;
  };

  /// The costs of one half of a group, cut once more: combination o * quarter + i costs inner[i] + outer[o].
  struct Halves {
    explicit Halves(const float (*costs)[Levels]) {
      for (int i = 0; i < quarter; ++i) {
        if constexpr (half == 4) {
          inner[i] = costs[0][i % Levels] + costs[1][i / Levels];
          outer[i] = costs[2][i % Levels] + costs[3][i / Levels];
        } else {
          inner[i] = costs[0][i];
          outer[i] = costs[1][i];
        }
      }
    }
    float inner[quarter];
    float outer[quarter];
  };

  static float least(const float (&values)[quarter]) { return *std::min_element(values, values + quarter); }

  std::vector<Entry> entries_;
  std::array<uint16_t, combinations + 1> start_{};
  std::vector<Listed> order_;
};

/// How a format uses its grid.
template <int Dims, int Levels>
struct GridFormat {
  const Codebook<Dims, Levels>& book;
  int variants;                 // sets of level values to choose from: 1, or the two shifts of IQ1
  bool variant_per_part;        // one choice for all groups of a part
  float values[2][Levels];      // the value of each level in each variant
  int part_size;                // values under one scale: 16 or 32
  int scale_top;                // scales are the odd numbers 1 .. 2 * scale_top + 1
  float unit;                   // a value is f16 d * unit * scale * level value
  bool widens;                  // see widened()
  std::array<float, 6> ladder;  // starting points: the largest level, relative to the largest magnitude of the part
};

/// What a search finds for 256 values.
struct GridBlock {
  uint16_t d = 0;           // f16 bits
  uint8_t scale[16] = {};   // s of the odd scale 2s + 1
  uint16_t index[64] = {};  // of each group
  uint8_t variant[64] = {};
};

template <int Dims, int Levels>
class GridSearch {
 public:
  using Format = GridFormat<Dims, Levels>;

  GridSearch(const Format& format, const float* x, const float* w) : f_(format), x_(x), w_(w) {
    parts_ = 256 / f_.part_size;
    groups_ = f_.part_size / Dims;
    largest_level_ = 0;
    for (const auto& values : f_.values) {
      for (const float value : values) {
        largest_level_ = std::max(largest_level_, std::fabs(value));
      }
    }
  }

  void run(GridBlock& out) {
    constexpr int rounds = 2;
    float fits[16];
    float largest = 0;
    for (int p = 0; p < parts_; ++p) {
      fits[p] = fit_part(p);
      largest = std::max(largest, fits[p]);
    }
    set_d(largest / static_cast<float>(2 * f_.scale_top + 1));
    for (int p = 0; p < parts_; ++p) {
      block_.scale[p] =
          static_cast<uint8_t>(nearest_code((fits[p] * reciprocal(d_) - 1) * 0.5f, static_cast<float>(f_.scale_top)));
    }
    float best_error = search_neighbours();
    out = block_;
    for (int round = 1; round < rounds && refit(); ++round) {
      const float error = search_neighbours();
      if (!(error < best_error)) {
        break;
      }
      best_error = error;
      out = block_;
    }
    if (f_.widens) {
      block_ = out;
      out.d = widened();
    }
  }

 private:
  struct Sums {
    float qq = 0;  // of the squared level values, weighted
    float xq = 0;
  };

  void set_d(float d) {
    block_.d = f32_to_f16(d / f_.unit);
    d_ = f16_to_f32(block_.d) * f_.unit;
  }

  /// Chooses the entries of part p under `scale` and returns the error. `variant` < 0 lets every group choose.
  float choose(int p, float scale, int variant) {
    float total = 0;
    for (int g = p * groups_; g < (p + 1) * groups_; ++g) {
      float best = 0;
      const uint16_t guess = block_.index[g];
      const int first = variant < 0 ? 0 : variant;
      const int last = variant < 0 ? f_.variants - 1 : variant;
      for (int v = first; v <= last; ++v) {
        float costs[Dims][Levels];
        for (int j = 0; j < Dims; ++j) {
          for (int l = 0; l < Levels; ++l) {
            const float difference = x_[g * Dims + j] - scale * f_.values[v][l];
            costs[j][l] = w_[g * Dims + j] * (difference * difference);
          }
        }
        uint16_t index = guess;
        const float cost = f_.book.nearest(costs, index);
        if (v == first || cost < best) {
          best = cost;
          block_.index[g] = index;
          block_.variant[g] = static_cast<uint8_t>(v);
        }
      }
      total += best;
    }
    return total;
  }

  Sums sums(int p) const {
    Sums total;
    for (int g = p * groups_; g < (p + 1) * groups_; ++g) {
      const uint8_t* levels = f_.book.levels_of(block_.index[g]);
      for (int j = 0; j < Dims; ++j) {
        const float value = f_.values[block_.variant[g]][levels[j]];
        total.qq += w_[g * Dims + j] * value * value;
        total.xq += w_[g * Dims + j] * value * x_[g * Dims + j];
      }
    }
    return total;
  }

  /// The least-squares scale for the present entries, and how much it takes off the error of all zeros.
  float least_squares(int p, float& gain) const {
    const Sums s = sums(p);
    if (!(s.qq > 0 && s.xq > 0)) {
      gain = 0;
      return 0;
    }
    gain = s.xq * (s.xq / s.qq);
    return s.xq / s.qq;
  }

  /// The best real-valued scale of part p; leaves its entries as the guess of later searches.
  float fit_part(int p) {
    float largest = 0;
    for (int j = p * f_.part_size; j < (p + 1) * f_.part_size; ++j) {
      largest = std::max(largest, std::fabs(x_[j]));
    }
    float best = 0;
    float best_gain = 0;
    int best_variant = f_.variant_per_part ? 0 : -1;
    for (int v = best_variant; v < (f_.variant_per_part ? f_.variants : 0); ++v) {
      for (const float t : f_.ladder) {
        choose(p, largest * t / largest_level_, v);
        float gain = 0;
        const float scale = least_squares(p, gain);
        if (gain > best_gain) {
          best = scale;
          best_gain = gain;
          best_variant = v;
        }
      }
    }
    variant_[p] = best_variant;
    constexpr int refinements = 2;
    for (int i = 0; i < refinements; ++i) {
      choose(p, best, best_variant);
      float gain = 0;
      const float scale = least_squares(p, gain);
      if (!(gain > best_gain)) {
        break;
      }
      best = scale;
      best_gain = gain;
    }
    return best;
  }

  /// Each part takes the best of its integer scale and the two neighbours; returns the error.
  float search_neighbours() {
    float total = 0;
    for (int p = 0; p < parts_; ++p) {
      const int scale = block_.scale[p];
      float best = choose(p, d_ * static_cast<float>(2 * scale + 1), variant_[p]);
      GridBlock best_block = block_;
      for (const int other : {scale - 1, scale + 1}) {
        if (other < 0 || other > f_.scale_top) {
          continue;
        }
        const float error = choose(p, d_ * static_cast<float>(2 * other + 1), variant_[p]);
        if (error < best) {
          best = error;
          block_.scale[p] = static_cast<uint8_t>(other);
          best_block = block_;
        }
      }
      block_ = best_block;
      total += best;
    }
    return total;
  }

  /// Least squares for d with all entries and integers as they are. False when it is not defined.
  bool refit() {
    Sums total;
    for (int p = 0; p < parts_; ++p) {
      const Sums s = sums(p);
      const auto scale = static_cast<float>(2 * block_.scale[p] + 1);
      total.qq += scale * scale * s.qq;
      total.xq += scale * s.xq;
    }
    const float d = total.xq / total.qq;
    if (!(d > 0 && d < 65504 * f_.unit)) {
      return false;
    }
    set_d(d);
    return true;
  }

  /// Least squares make the values of a coarse code too small on average: x * q is less than x * x by the error. Half
  /// of that, as an exponent, is taken back.
  uint16_t widened() {
    d_ = f16_to_f32(block_.d) * f_.unit;
    float xx = 0;
    float xq = 0;
    for (int p = 0; p < parts_; ++p) xq += d_ * static_cast<float>(2 * block_.scale[p] + 1) * sums(p).xq;
    for (int j = 0; j < 256; ++j) xx += w_[j] * x_[j] * x_[j];
    constexpr float least_gain = 0.3f;  // less is a block that has hardly anything to do with its code
    const float d = d_ * std::sqrt(xx / xq);
    if (!(xq > least_gain * xx && d < 65504 * f_.unit)) return block_.d;
    return f32_to_f16(d / f_.unit);
  }

  const Format& f_;
  const float* x_;
  const float* w_;
  int parts_;
  int groups_;
  float largest_level_;
  float d_ = 0;
  GridBlock block_;
  int variant_[16] = {};
};

}  // namespace cohort::quant
