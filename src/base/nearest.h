#pragma once
// What somebody meant who misspelt a name.

#include <string_view>
#include <vector>

namespace cohort {

/// The one of `known` that `name` probably stands for: equal but for case, '-' and '_', or else at most two edits away
/// (optimal string alignment) and at most a third of its own length in edits. The first of the nearest; empty when none
/// is near. Views what `known` views.
std::string_view nearest(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace cohort
