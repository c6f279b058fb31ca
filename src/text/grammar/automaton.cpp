#include "text/grammar/automaton.h"

#include <algorithm>

namespace cohort::grammar {
namespace {

/// Below so many levels, stacks that differ are kept side by side instead of being merged: merging goes down as deep as
/// they differ.
constexpr int kMergedLevels = 64;

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15U + (hash << 6) + (hash >> 2);
  return hash * 0xFF51AFD7ED558CCDU;
}

uint64_t key_of(const Frame& f) {
  return uint64_t{f.item} << 32 | static_cast<uint32_t>(f.count);
}

bool before(const Frame& a, const Frame& b) {
  return key_of(a) != key_of(b) ? key_of(a) < key_of(b) : a.below < b.below;
}

}  // namespace

/// What can be reached without reading anything.
struct Automaton::Closure {
  std::vector<Frame> found;  // one for each (item, count)
  std::unordered_map<uint64_t, uint32_t> index;
  std::vector<uint32_t> work;
  bool complete = false, unknown = false;
};

Automaton::Automaton(const Rules& rules) : rules_(&rules) {
  intern({}, true, false);
  intern({}, false, true);
  intern({}, false, false);
}

size_t Automaton::bytes() const {
  constexpr size_t kMapEntry = 48;
  return frames_.capacity() * sizeof(Frame) + sets_.capacity() * sizeof(Set) + next_.capacity() * sizeof(Stacks) +
         (index_.size() + united_.size() + entered_.size()) * kMapEntry;
}

Stacks Automaton::intern(std::vector<Frame> frames, bool complete, bool unknown) {
  std::ranges::sort(frames, before);
  frames.erase(std::unique(frames.begin(), frames.end()), frames.end());
  uint64_t hash = (complete ? 1 : 0) + (unknown ? 2 : 0);
  for (const Frame& f : frames) hash = mix(mix(hash, key_of(f)), f.below);
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Set& set = sets_[it->second];
    if (set.complete == complete && set.unknown == unknown && std::ranges::equal(this->frames(it->second), frames))
      return it->second;
  }
  const auto id = static_cast<Stacks>(sets_.size());
  sets_.push_back({static_cast<uint32_t>(frames_.size()), static_cast<uint32_t>(frames.size()), complete, unknown, -1});
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  index_.emplace(hash, id);
  return id;
}

Stacks Automaton::unite(Stacks a, Stacks b, int depth) {
  if (a == b || b == kNone) return a;
  if (a == kNone) return b;
  const uint64_t pair = uint64_t{std::min(a, b)} << 32 | std::max(a, b);
  if (const auto found = united_.find(pair); found != united_.end()) return found->second;
  std::vector<Frame> left(frames(a).begin(), frames(a).end());
  const std::vector<Frame> right(frames(b).begin(), frames(b).end());
  work_ += left.size() + right.size();
  std::vector<Frame> out;
  size_t i = 0, j = 0;
  while (i < left.size() && j < right.size()) {
    if (key_of(left[i]) == key_of(right[j]) && depth < kMergedLevels) {
      out.push_back({left[i].item, left[i].count, unite(left[i].below, right[j].below, depth + 1)});
      ++i;
      ++j;
    } else if (before(left[i], right[j])) {
      out.push_back(left[i++]);
    } else {
      out.push_back(right[j++]);
    }
  }
  out.insert(out.end(), left.begin() + static_cast<std::ptrdiff_t>(i), left.end());
  out.insert(out.end(), right.begin() + static_cast<std::ptrdiff_t>(j), right.end());
  const Stacks result = intern(std::move(out), complete(a) || complete(b), unknown(a) || unknown(b));
  united_.emplace(pair, result);
  return result;
}

void Automaton::add_all(Closure& closure, Stacks stacks) {
  closure.complete |= complete(stacks);
  closure.unknown |= unknown(stacks);
  for (size_t i = 0; i < sets_[stacks].size; ++i) {  // by index: adding may move the frames
    const Frame f = frames_[sets_[stacks].first + i];
    add(closure, f.item, f.count, f.below);
  }
}

void Automaton::add(Closure& closure, uint32_t item, int32_t count, Stacks below) {
  ++work_;
  const auto [at, added] = closure.index.try_emplace(key_of({item, count, 0}), closure.found.size());
  if (added) {
    closure.found.push_back({item, count, below});
    closure.work.push_back(at->second);
    return;
  }
  Frame& frame = closure.found[at->second];
  const Stacks both = unite(frame.below, below, 0);
  if (both == frame.below) return;
  closure.found[at->second].below = both;
  closure.work.push_back(at->second);
}

Stacks Automaton::close(Closure& closure) {
  while (!closure.work.empty()) {
    if (work_ > limit_) exhausted_ = true;
    if (exhausted_) return kNone;
    const Frame f = closure.found[closure.work.back()];
    closure.work.pop_back();
    const Item& item = rules_->items[f.item];
    const auto begin_rule = [&](Stacks below) {
      for (const uint32_t first : rules_->alternatives[static_cast<size_t>(item.index)]) add(closure, first, 0, below);
    };
    switch (item.kind) {
      case Item::Kind::end:
        add_all(closure, f.below);
        break;
      case Item::Kind::call: {
        const bool last = rules_->items[f.item + 1].kind == Item::Kind::end;
        begin_rule(last ? f.below : intern({{f.item + 1, 0, f.below}}, false, false));
        break;
      }
      case Item::Kind::repeat:
        if (f.count >= item.low) add(closure, f.item + 1, 0, f.below);
        if (item.high < 0 || f.count < item.high) {
          const int32_t rounds = item.high < 0 ? std::min(f.count + 1, item.low) : f.count + 1;
          begin_rule(intern({{f.item, rounds, f.below}}, false, false));
        }
        break;
      case Item::Kind::bytes:
      case Item::Kind::token:
        break;
    }
  }
  std::erase_if(closure.found, [&](const Frame& f) {
    const Item::Kind kind = rules_->items[f.item].kind;
    return kind != Item::Kind::bytes && kind != Item::Kind::token;
  });
  return intern(std::move(closure.found), closure.complete, closure.unknown);
}

Stacks Automaton::start() {
  Closure closure;
  for (const uint32_t first : rules_->alternatives[rules_->root]) add(closure, first, 0, kComplete);
  return close(closure);
}

Stacks Automaton::enter(Stacks stacks) {
  if (const auto found = entered_.find(stacks); found != entered_.end()) return found->second;
  Closure closure;
  add_all(closure, stacks);
  const Stacks state = close(closure);
  if (!exhausted_) entered_.emplace(stacks, state);
  return state;
}

Stacks Automaton::step_class(Stacks state, uint8_t byte_class) {
  if (state == kNone) return kNone;
  const size_t classes = rules_->class_byte.size();
  if (sets_[state].next < 0) {
    sets_[state].next = static_cast<int32_t>(next_.size() / classes);
    next_.resize(next_.size() + classes, kNotYet);
  }
  const size_t slot = static_cast<size_t>(sets_[state].next) * classes + byte_class;
  if (next_[slot] != kNotYet) return next_[slot];
  Closure closure;
  for (size_t i = 0; i < sets_[state].size; ++i) {
    const Frame f = frames_[sets_[state].first + i];
    const Item& item = rules_->items[f.item];
    ++work_;
    if (item.kind != Item::Kind::bytes) continue;
    if (rules_->sets[static_cast<size_t>(item.index)].test(rules_->class_byte[byte_class]))
      add(closure, f.item + 1, 0, f.below);
  }
  const Stacks result = close(closure);
  if (!exhausted_) next_[slot] = result;
  return result;
}

Stacks Automaton::step_token(Stacks state, int32_t token) {
  Closure closure;
  for (size_t i = 0; i < sets_[state].size; ++i) {
    const Frame f = frames_[sets_[state].first + i];
    const Item& item = rules_->items[f.item];
    if (item.kind == Item::Kind::token && item.index == token) add(closure, f.item + 1, 0, f.below);
  }
  return close(closure);
}

Stacks Automaton::copy(const Automaton& other, Stacks stacks) {
  // Depth first without recursion: stacks may be deep.
  std::unordered_map<Stacks, Stacks> copied;
  std::vector<Stacks> path{stacks};
  while (!path.empty()) {
    const Stacks from = path.back();
    if (copied.contains(from)) {
      path.pop_back();
      continue;
    }
    bool ready = true;
    for (const Frame& f : other.frames(from)) {
      if (!copied.contains(f.below)) {
        path.push_back(f.below);
        ready = false;
      }
    }
    if (!ready) continue;
    std::vector<Frame> frames(other.frames(from).begin(), other.frames(from).end());
    for (Frame& f : frames) f.below = copied.at(f.below);
    copied.emplace(from, intern(std::move(frames), other.complete(from), other.unknown(from)));
    path.pop_back();
  }
  return copied.at(stacks);
}

}  // namespace cohort::grammar
