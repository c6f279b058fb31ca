#include "moe/groups.h"

#include <algorithm>

namespace cohort {

void RouteGroups::build(std::span<const int32_t> experts, int32_t top_k, int32_t expert_count) {
  top_k_ = top_k;
  counts_.assign(static_cast<size_t>(expert_count), 0);
  for (int32_t expert : experts) ++counts_[static_cast<size_t>(expert)];
  groups_.clear();
  for (int32_t expert = 0; expert < expert_count; ++expert) {
    const int32_t count = counts_[static_cast<size_t>(expert)];
    if (count > 0) groups_.push_back({expert, 0, count});
  }
  std::ranges::sort(groups_, [](const Group& a, const Group& b) {
    return a.count != b.count ? a.count > b.count : a.expert < b.expert;
  });
  int32_t first = 0;
  for (Group& group : groups_) {
    group.first = first;
    counts_[static_cast<size_t>(group.expert)] = first;  // from here on: where the expert's next route goes
    first += group.count;
  }
  order_.resize(experts.size());
  place_.resize(experts.size());
  for (size_t route = 0; route < experts.size(); ++route) {
    const int32_t at = counts_[static_cast<size_t>(experts[route])]++;
    order_[static_cast<size_t>(at)] = static_cast<int32_t>(route);
    place_[route] = at;
  }
}

}  // namespace cohort
