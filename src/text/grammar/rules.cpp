#include "text/grammar/rules.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>

#include "base/result.h"

namespace cohort::grammar {
namespace {

constexpr size_t kMaxItems = 100'000;  // a tenth of a second, and some megabytes, for a grammar that is refused
/// Rounds of a repetition whose body may be empty: each is looked at without reading anything.
constexpr int32_t kMaxEmptyRounds = 1000;

using Kind = Item::Kind;
using Expression = Grammar::Expression;

/// A run of byte ranges: the spellings of a range of characters.
struct ByteRun {
  std::vector<std::pair<uint8_t, uint8_t>> bytes;
};

/// The UTF-8 spellings of code points first to last as runs whose bytes are independent of each other.
void split_range(uint32_t first, uint32_t last, std::vector<ByteRun>& out) {
  for (const uint32_t limit : {0x7FU, 0x7FFU, 0xFFFFU}) {
    if (first <= limit && last > limit) {
      split_range(first, limit, out);
      split_range(limit + 1, last, out);
      return;
    }
  }
  // Trailing bytes are independent only if the range covers all of them.
  for (uint32_t shift = 6; shift <= 18; shift += 6) {
    const uint32_t mask = (1U << shift) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      split_range(first, first | mask, out);
      split_range((first | mask) + 1, last, out);
      return;
    }
    if ((last & mask) != mask) {
      split_range(first, (last & ~mask) - 1, out);
      split_range(last & ~mask, last, out);
      return;
    }
  }
  const std::string low = utf8(first), high = utf8(last);
  ByteRun run;
  for (size_t i = 0; i < low.size(); ++i)
    run.bytes.emplace_back(static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i]));
  out.push_back(std::move(run));
}

class Lowering {
 public:
  Lowering(const Grammar& grammar, const ByteSet& available) : grammar_(grammar), available_(available) {}

  Expected<Rules> run() {
    rules_.alternatives.resize(grammar_.rules().size());
    for (size_t r = 0; r < grammar_.rules().size(); ++r) COHORT_TRY(define(r, grammar_.rules()[r].body));
    rules_.root = static_cast<uint32_t>(grammar_.root);
    prune();
    find_nullable();
    COHORT_TRY(check_empty_rounds());
    COHORT_TRY(check_left_recursion());
    classify_bytes();
    if (rules_.alternatives[rules_.root].empty()) {
      return fail(ErrorCode::invalid_argument,
                  "the grammar allows no text at all: every way through it has a part without an end, or characters "
                  "that the vocabulary cannot spell");
    }
    return std::move(rules_);
  }

 private:
  using Items = std::vector<Item>;

  int32_t set(const ByteSet& bytes) {
    const std::string key = bytes.to_string();
    const auto [found, added] = set_ids_.try_emplace(key, static_cast<int32_t>(rules_.sets.size()));
    if (added) rules_.sets.push_back(bytes & available_);
    return found->second;
  }
  Item byte_range(uint8_t first, uint8_t last) {
    ByteSet bytes;
    for (unsigned b = first; b <= last; ++b) bytes.set(b);
    return {Kind::bytes, set(bytes), 0, 0};
  }
  int32_t new_rule() {
    rules_.alternatives.emplace_back();
    return static_cast<int32_t>(rules_.alternatives.size() - 1);
  }
  Expected<void> add_alternative(size_t rule, const Items& items) {
    if (rules_.items.size() + items.size() >= kMaxItems)
      return fail(ErrorCode::capacity, "the grammar has more than {} items; make it smaller", kMaxItems);
    rules_.alternatives[rule].push_back(static_cast<uint32_t>(rules_.items.size()));
    rules_.items.insert(rules_.items.end(), items.begin(), items.end());
    rules_.items.emplace_back();
    return {};
  }

  Expected<void> define(size_t rule, Grammar::Id body) {
    const Expression& e = grammar_.expression(body);
    if (e.kind == Expression::Kind::choice) {
      for (const Grammar::Id part : e.parts) COHORT_TRY(define(rule, part));
      return {};
    }
    Items items;
    COHORT_TRY(append(body, items));
    return add_alternative(rule, items);
  }

  /// A rule whose text is that of an expression; the same one for the same expression.
  Expected<int32_t> rule_for(Grammar::Id id) {
    const Expression& e = grammar_.expression(id);
    if (e.kind == Expression::Kind::rule) return e.index;
    if (e.kind == Expression::Kind::characters) return rule_for_characters(e.ranges);
    if (const auto found = rule_of_expression_.find(id); found != rule_of_expression_.end()) return found->second;
    const int32_t rule = new_rule();
    rule_of_expression_[id] = rule;
    COHORT_TRY(define(static_cast<size_t>(rule), id));
    return rule;
  }

  Expected<int32_t> rule_for_characters(const std::vector<CodeRange>& ranges) {
    if (const auto found = rule_of_ranges_.find(ranges); found != rule_of_ranges_.end()) return found->second;
    const int32_t rule = new_rule();
    rule_of_ranges_[ranges] = rule;
    std::vector<ByteRun> runs;
    for (const CodeRange& range : ranges) split_range(range.first, range.second, runs);
    ByteSet single;
    for (const ByteRun& run : runs) {
      if (run.bytes.size() == 1) {
        for (unsigned b = run.bytes[0].first; b <= run.bytes[0].second; ++b) single.set(b);
        continue;
      }
      Items items;
      for (const auto& [first, last] : run.bytes) items.push_back(byte_range(first, last));
      COHORT_TRY(add_alternative(static_cast<size_t>(rule), items));
    }
    if (single.any()) COHORT_TRY(add_alternative(static_cast<size_t>(rule), {{Kind::bytes, set(single), 0, 0}}));
    return rule;
  }

  Expected<void> append(Grammar::Id id, Items& out) {
    const Expression& e = grammar_.expression(id);
    switch (e.kind) {
      case Expression::Kind::literal:
        for (const char c : e.bytes) out.push_back(byte_range(static_cast<uint8_t>(c), static_cast<uint8_t>(c)));
        return {};
      case Expression::Kind::sequence:
        for (const Grammar::Id part : e.parts) COHORT_TRY(append(part, out));
        return {};
      case Expression::Kind::token:
        out.push_back({Kind::token, e.index, 0, 0});
        return {};
      case Expression::Kind::repeat: {
        if (e.low == 1 && e.high == 1) return append(e.parts.front(), out);
        COHORT_ASSIGN(const int32_t body, rule_for(e.parts.front()));
        if (e.high != 0) out.push_back({Kind::repeat, body, e.low, e.high});
        return {};
      }
      case Expression::Kind::characters:
        if (!e.ranges.empty() && e.ranges.back().second < 0x80) {
          ByteSet bytes;
          for (const CodeRange& range : e.ranges) {
            for (uint32_t b = range.first; b <= range.second; ++b) bytes.set(b);
          }
          out.push_back({Kind::bytes, set(bytes), 0, 0});
          return {};
        }
        break;
      case Expression::Kind::choice:
      case Expression::Kind::rule:
        break;
    }
    COHORT_ASSIGN(const int32_t rule, rule_for(id));
    out.push_back({Kind::call, rule, 0, 0});
    return {};
  }

  bool is_needed(const Item& item) const {
    return item.kind == Kind::call || (item.kind == Kind::repeat && item.low > 0);
  }

  /// Removes alternatives from which no finite text can be derived.
  void prune() {
    const size_t count = rules_.alternatives.size();
    struct Waiting {
      uint32_t rule, begin;
      uint32_t missing = 0;  // items whose rules are not known to derive anything
    };
    std::vector<Waiting> all;
    std::vector<std::vector<uint32_t>> users(count);
    std::vector<bool> productive(count);
    std::vector<uint32_t> ready;  // alternatives
    for (uint32_t r = 0; r < count; ++r) {
      for (const uint32_t begin : rules_.alternatives[r]) {
        Waiting w{r, begin, 0};
        bool possible = true;
        for (uint32_t i = begin; rules_.items[i].kind != Kind::end; ++i) {
          const Item& item = rules_.items[i];
          if (item.kind == Kind::bytes && rules_.sets[static_cast<size_t>(item.index)].none()) possible = false;
          if (!is_needed(item)) continue;
          users[static_cast<size_t>(item.index)].push_back(static_cast<uint32_t>(all.size()));
          ++w.missing;
        }
        if (!possible) ++w.missing;  // never becomes ready
        if (w.missing == 0) ready.push_back(static_cast<uint32_t>(all.size()));
        all.push_back(w);
      }
    }
    while (!ready.empty()) {
      const uint32_t rule = all[ready.back()].rule;
      ready.pop_back();
      if (productive[rule]) continue;
      productive[rule] = true;
      for (const uint32_t user : users[rule]) {
        if (--all[user].missing == 0) ready.push_back(user);
      }
    }
    for (auto& alternatives : rules_.alternatives) alternatives.clear();
    for (const Waiting& w : all) {
      if (w.missing == 0) rules_.alternatives[w.rule].push_back(w.begin);
    }
    for (Item& item : rules_.items) {
      if (item.kind == Kind::repeat && !productive[static_cast<size_t>(item.index)]) item.high = 0;
    }
  }

  bool may_be_empty(const Item& item) const {
    if (item.kind == Kind::call) return nullable_[static_cast<size_t>(item.index)];
    return item.kind == Kind::repeat && (item.low == 0 || nullable_[static_cast<size_t>(item.index)]);
  }

  void find_nullable() {
    const size_t count = rules_.alternatives.size();
    nullable_.assign(count, false);
    std::vector<std::vector<uint32_t>> users(count);
    for (uint32_t r = 0; r < count; ++r) {
      for (const uint32_t begin : rules_.alternatives[r]) {
        for (uint32_t i = begin; rules_.items[i].kind != Kind::end; ++i) {
          const Item& item = rules_.items[i];
          if (item.kind == Kind::call || item.kind == Kind::repeat) users[static_cast<size_t>(item.index)].push_back(r);
        }
      }
    }
    std::vector<uint32_t> work(count);
    for (uint32_t r = 0; r < count; ++r) work[r] = r;
    while (!work.empty()) {
      const uint32_t r = work.back();
      work.pop_back();
      if (nullable_[r]) continue;
      const bool nullable = std::ranges::any_of(rules_.alternatives[r], [&](uint32_t i) {
        while (may_be_empty(rules_.items[i])) ++i;
        return rules_.items[i].kind == Kind::end;
      });
      if (!nullable) continue;
      nullable_[r] = true;
      work.insert(work.end(), users[r].begin(), users[r].end());
    }
  }

  Expected<void> check_empty_rounds() {
    for (Item& item : rules_.items) {
      if (item.kind != Kind::repeat || !nullable_[static_cast<size_t>(item.index)]) continue;
      item.low = 0;  // empty rounds make up for missing ones
      if (item.high > kMaxEmptyRounds) {
        return fail(ErrorCode::invalid_argument,
                    "the grammar repeats something that may be empty up to {} times; at most {} are allowed (or no "
                    "limit)",
                    item.high, kMaxEmptyRounds);
      }
    }
    return {};
  }

  std::string name_of(uint32_t rule) const {
    return rule < grammar_.rules().size() ? grammar_.rules()[rule].name : std::string();
  }

  /// A rule that calls itself before it has read anything could do so for ever.
  Expected<void> check_left_recursion() {
    const size_t count = rules_.alternatives.size();
    std::vector<std::vector<uint32_t>> edges(count);
    for (uint32_t r = 0; r < count; ++r) {
      for (uint32_t i : rules_.alternatives[r]) {
        for (;; ++i) {
          const Item& item = rules_.items[i];
          if (item.kind == Kind::call || (item.kind == Kind::repeat && item.high != 0))
            edges[r].push_back(static_cast<uint32_t>(item.index));
          if (!may_be_empty(item)) break;
        }
      }
    }
    enum : uint8_t { unseen, open, closed };
    std::vector<uint8_t> state(count, unseen);
    std::vector<std::pair<uint32_t, size_t>> path;  // rule, next edge
    for (uint32_t start = 0; start < count; ++start) {
      if (state[start] != unseen) continue;
      path.emplace_back(start, 0);
      state[start] = open;
      while (!path.empty()) {
        auto& [rule, next] = path.back();
        if (next == edges[rule].size()) {
          state[rule] = closed;
          path.pop_back();
          continue;
        }
        const uint32_t to = edges[rule][next++];
        if (state[to] == open) {
          std::string name = name_of(to);
          for (size_t i = path.size(); i-- > 0 && name.empty() && path[i].first != to;) name = name_of(path[i].first);
          return fail(ErrorCode::invalid_argument,
                      "the grammar's rule '{}' begins with itself; write the repetition with * or +, or with the "
                      "recursion at the end",
                      name);
        }
        if (state[to] == unseen) {
          state[to] = open;
          path.emplace_back(to, 0);
        }
      }
    }
    return {};
  }

  void classify_bytes() {
    std::unordered_map<std::string, uint8_t> classes;
    for (size_t b = 0; b < rules_.byte_class.size(); ++b) {
      std::string signature;
      for (const ByteSet& s : rules_.sets) signature += s.test(b) ? '1' : '0';
      const auto [found, added] = classes.try_emplace(signature, static_cast<uint8_t>(rules_.class_byte.size()));
      if (added) rules_.class_byte.push_back(static_cast<unsigned char>(b));
      rules_.byte_class[b] = found->second;
    }
  }

  const Grammar& grammar_;
  const ByteSet& available_;
  Rules rules_;
  std::unordered_map<std::string, int32_t> set_ids_;
  std::unordered_map<Grammar::Id, int32_t> rule_of_expression_;
  std::map<std::vector<CodeRange>, int32_t> rule_of_ranges_;
  std::vector<bool> nullable_;
};

}  // namespace

Expected<Rules> make_rules(const Grammar& grammar, const ByteSet& available) {
  return Lowering(grammar, available).run();
}

}  // namespace cohort::grammar
