#include "engine/roster.h"

#include <algorithm>
#include <utility>

namespace cohort {

Roster::Roster(int32_t max_streams, int32_t pages, bool prefix_cache, double aging)
    : max_streams_(max_streams), prefix_cache_(prefix_cache), aging_(aging), pool_(pages), tree_(pool_) {}

void Roster::add(Sequence sequence) {
  const int32_t priority = sequence.request.priority;
  sequence.turn = aging_ > 0 ? sequence.arrival + priority * aging_ : priority;
  wait(std::move(sequence));
}

void Roster::wait(Sequence sequence) {
  ++waiting_by_priority_[sequence.request.priority];
  waiting_.insert(std::ranges::upper_bound(waiting_, sequence, &Sequence::before), std::move(sequence));
}

/// `sequence` waits no longer; it is still in its place.
void Roster::forget_waiting(const Sequence& sequence) {
  const auto count = waiting_by_priority_.find(sequence.request.priority);
  if (--count->second == 0) waiting_by_priority_.erase(count);
}

std::span<const int32_t> Roster::page_tokens(const Sequence& sequence, int32_t page) const {
  return std::span(sequence.tokens).subspan(static_cast<size_t>(page) * kPagePositions, kPagePositions);
}

void Roster::give_up_pages(Sequence& sequence) {
  for (const int32_t page : sequence.pages) pool_.release(page);
  sequence.pages.clear();
  sequence.guesses.clear();
  sequence.cached = 0;
  sequence.node = PrefixTree::kRoot;
  sequence.published = 0;
  if (sequence.generated() == 0) sequence.reused = 0;
  if (sequence.place.taken()) {
    sequence.canvas.reset();
    sequence.place = {};
  }
}

void Roster::remove(SequenceId id) {
  if (const auto waits = std::ranges::find(waiting_, id, &Sequence::id); waits != waiting_.end()) {
    forget_waiting(*waits);
    waiting_.erase(waits);
    return;
  }
  const auto found = std::ranges::find(running_, id, &Sequence::id);
  if (found == running_.end()) return;
  give_up_pages(*found);
  running_.erase(found);
}

/// Pages that a sequence would take to read all its tokens; those that others hold already cost nothing.
int32_t Roster::new_pages_of(const Sequence& sequence) const {
  int32_t needed = pages_for(sequence.next_positions());
  if (!prefix_cache_) return needed;
  int32_t node = PrefixTree::kRoot;
  for (int32_t page = 0; (page + 1) * kPagePositions < sequence.size(); ++page) {
    node = tree_.peek(node, page_tokens(sequence, page));
    if (node == PrefixTree::kNone) break;
    if (pool_.references(tree_.page(node)) > 1) --needed;
  }
  return needed;
}

/// Pages that would be free, or in the prefix tree only, without this sequence.
int32_t Roster::pages_of_alone(const Sequence& sequence) const {
  int32_t alone = 0;
  for (size_t i = 0; i < sequence.pages.size(); ++i) {
    const int32_t others = static_cast<int32_t>(i) < sequence.published ? 1 : 0;  // the tree's
    alone += pool_.references(sequence.pages[i]) - others == 1 ? 1 : 0;
  }
  return alone;
}

/// Pages for `sequence` when it runs before running_[turn]. Beside its own, one for each sequence before it must be
/// left, so that a sequence is not admitted only to be preempted a few tokens later; those after it give up theirs. The
/// first of all finds its pages in any case.
bool Roster::has_pages_for(const Sequence& sequence, size_t turn) const {
  if (turn == 0) return true;
  int32_t promised = 0;  // to prompts that are still being read
  int32_t spare = 0, yielded = 0;
  for (size_t i = 0; i < running_.size(); ++i) {
    const Sequence& s = running_[i];
    if (i >= turn) {
      yielded += pages_of_alone(s);
      continue;
    }
    promised += std::max(0, pages_for(s.next_positions()) - static_cast<int32_t>(s.pages.size()));
    ++spare;
  }
  return new_pages_of(sequence) + spare + promised <= obtainable() + yielded;
}

/// In the order of turns. One that comes before running ones takes the place of the last of them when all places are
/// taken; their pages it takes when it needs them.
void Roster::admit() {
  while (!waiting_.empty()) {
    const auto turn =
        static_cast<size_t>(std::ranges::upper_bound(running_, waiting_.front(), &Sequence::before) - running_.begin());
    const bool full = running_.size() == static_cast<size_t>(max_streams_);
    if ((full && turn == running_.size()) || !has_pages_for(waiting_.front(), turn)) return;
    Sequence next = std::move(waiting_.front());
    waiting_.pop_front();
    forget_waiting(next);
    if (full) preempt_last();
    running_.insert(running_.begin() + static_cast<std::ptrdiff_t>(turn), std::move(next));
  }
}

/// Takes full pages that others have computed; at least one token is left to run, because its logits are wanted.
void Roster::adopt(Sequence& s) {
  if (!prefix_cache_) return;
  while (s.cached % kPagePositions == 0 && s.missing() > kPagePositions) {
    const int32_t page = s.cached / kPagePositions;
    if (s.published != page || static_cast<size_t>(page) != s.pages.size()) return;
    const int32_t node = tree_.find(s.node, page_tokens(s, page));
    if (node == PrefixTree::kNone) return;
    pool_.share(tree_.page(node));
    s.pages.push_back(tree_.page(node));
    s.node = node;
    ++s.published;
    s.cached += kPagePositions;
    if (s.generated() == 0) s.reused += kPagePositions;
  }
}

/// A prompt whose next page is being computed by one before it waits for that page instead of computing it, too.
std::vector<Pending> Roster::pending() const {
  std::vector<Pending> out;
  std::vector<std::pair<int32_t, std::span<const int32_t>>> claimed;  // (node before the page, its tokens)
  for (const Sequence& s : running_) {
    out.push_back({s.runnable(), s.decoding(), s.request.priority});
    const int32_t page = s.cached / kPagePositions;
    const bool fills_page = (page + 1) * kPagePositions < s.size();
    if (!prefix_cache_ || s.decoding() || !fills_page || s.published != page) continue;
    const auto tokens = page_tokens(s, page);
    const bool taken = std::ranges::any_of(
        claimed, [&](const auto& claim) { return claim.first == s.node && std::ranges::equal(claim.second, tokens); });
    if (!taken) {
      claimed.emplace_back(s.node, tokens);
    } else if (s.cached % kPagePositions == 0) {
      out.back().rows = 0;
    }
  }
  return out;
}

void Roster::preempt_last() {
  Sequence last = std::move(running_.back());
  running_.pop_back();
  give_up_pages(last);
  wait(std::move(last));
  ++preemptions_;
}

/// A page for running_[i]; sequences after it may lose theirs. False when only those before it hold pages.
bool Roster::take_page(size_t i, std::vector<int32_t>& rows) {
  while (pool_.available() == 0 && !tree_.evict()) {
    if (i + 1 == running_.size()) return false;
    preempt_last();
    rows.pop_back();
  }
  running_[i].pages.push_back(pool_.take());
  return true;
}

/// Keeps as many guesses as there are positions for after `rows` rows.
void Roster::fit_guesses(Sequence& s, int32_t rows) {
  if (rows == 0) s.guesses.clear();
  if (s.guesses.empty()) return;
  const int64_t end = int64_t{s.cached} + rows;
  while (static_cast<int32_t>(s.pages.size()) < pages_for(end + static_cast<int64_t>(s.guesses.size())) &&
         (pool_.available() > 0 || tree_.evict())) {
    s.pages.push_back(pool_.take());
  }
  const int64_t room = static_cast<int64_t>(s.pages.size()) * kPagePositions - end;
  if (room < static_cast<int64_t>(s.guesses.size())) s.guesses.resize(static_cast<size_t>(room));
}

std::vector<int32_t> Roster::plan(const PrefillBudget& budget) {
  admit();
  for (Sequence& s : running_) adopt(s);
  const std::vector<Pending> states = pending();
  std::vector<int32_t> rows = schedule(states, budget.next(load_of(states)));
  for (size_t i = 0; i < running_.size(); ++i) {
    const int32_t needed = pages_for(int64_t{running_[i].cached} + rows[i]);
    while (static_cast<int32_t>(running_[i].pages.size()) < needed && take_page(i, rows)) {
    }
    // What has no page waits; the sequences before it that hold them go on and end.
    const auto room = static_cast<int32_t>(running_[i].pages.size()) * kPagePositions - running_[i].cached;
    rows[i] = running_[i].denoising() && room < rows[i] ? 0 : std::min(rows[i], room);
    fit_guesses(running_[i], rows[i]);
    rows[i] += static_cast<int32_t>(running_[i].guesses.size());
  }
  return rows;
}

void Roster::ran(size_t i, int32_t rows) {
  Sequence& s = running_[i];
  s.cached += rows;
  if (!prefix_cache_) return;
  while ((s.published + 1) * kPagePositions <= s.cached) {
    const auto p = static_cast<size_t>(s.published);
    const auto tokens = page_tokens(s, s.published);
    int32_t node = tree_.find(s.node, tokens);
    if (node == PrefixTree::kNone) {
      node = tree_.insert(s.node, tokens, s.pages[p]);
    } else if (tree_.page(node) != s.pages[p]) {
      // Somebody else computed the same page: the same bits, so one of them is enough.
      pool_.share(tree_.page(node));
      pool_.release(s.pages[p]);
      s.pages[p] = tree_.page(node);
    }
    s.node = node;
    ++s.published;
  }
}

}  // namespace cohort
