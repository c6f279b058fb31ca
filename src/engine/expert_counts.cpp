#include "engine/expert_counts.h"

#include <algorithm>

#include "base/result.h"
#include "formats/imatrix/imatrix.h"

namespace cohort {

Expected<std::vector<std::vector<float>>> read_expert_counts(const std::filesystem::path& path,
                                                             const Program& program) {
  COHORT_ASSIGN(const ImportanceMatrix matrix, read_importance(path));
  std::vector<std::vector<float>> counts;
  bool apart = false;
  for (const Op& op : program.ops) {
    const auto* experts = std::get_if<op::Experts>(&op.action);
    if (experts == nullptr) continue;
    const Importance* entry = nullptr;
    for (const Weight* weight : {experts->gate, experts->up, experts->down})
      if (entry == nullptr) entry = matrix.find(weight->name + ".weight");
    if (entry == nullptr) {
      return fail(ErrorCode::invalid_argument,
                  "'{}' has no counts of '{}.weight'; make one from this model with cohort imatrix", path.string(),
                  experts->gate->name);
    }
    if (entry->experts == 1 && experts->gate->experts > 1) {  // the older format: one sum for all experts
      counts.emplace_back(static_cast<size_t>(experts->gate->experts), entry->counts[0]);
      continue;
    }
    if (entry->experts != experts->gate->experts) {
      return fail(ErrorCode::invalid_argument, "'{}' counts {} experts of '{}.weight', the model has {}", path.string(),
                  entry->experts, experts->gate->name, experts->gate->experts);
    }
    apart = apart || std::ranges::adjacent_find(entry->counts, std::not_equal_to<>()) != entry->counts.end();
    counts.push_back(entry->counts);
  }
  if (!apart && !counts.empty()) {
    return fail(ErrorCode::invalid_argument,
                "'{}' counts every expert alike, as the older format does, so it cannot say which are chosen often; "
                "write it as GGUF (cohort imatrix --format gguf)",
                path.string());
  }
  return counts;
}

}  // namespace cohort
