// The routes of one step and layer, grouped by expert: the immutable list of (row, slot, expert) that every pass over
// the experts walks, so that each distinct expert's weights are read once however many rows chose it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cohort {

class RouteGroups {
 public:
  /// All routes of one expert: entries first .. first + count of order().
  struct Group {
    int32_t expert, first, count;
  };

  /// experts [rows * top_k]: the expert of each row's slots, each in [0, expert_count). A counting sort; groups come in
  /// falling order of their number of routes (the longest work starts first), ties by expert, and only where there is a
  /// route. Within a group routes keep the order of rows, then slots. Memory is kept between calls.
  void build(std::span<const int32_t> experts, int32_t top_k, int32_t expert_count);

  std::span<const Group> groups() const { return groups_; }
  int32_t top_k() const { return top_k_; }
  int32_t routes() const { return static_cast<int32_t>(order_.size()); }
  /// The route (row * top_k + slot) at each place of the sorted order.
  std::span<const int32_t> order() const { return order_; }
  int32_t row_at(int32_t place) const { return order_[static_cast<size_t>(place)] / top_k_; }
  /// The inverse of order(): the place of each route.
  std::span<const int32_t> place() const { return place_; }
  int32_t largest_group() const { return groups_.empty() ? 0 : groups_.front().count; }

 private:
  int32_t top_k_ = 1;
  std::vector<Group> groups_;
  std::vector<int32_t> order_, place_, counts_;
};

}  // namespace cohort
