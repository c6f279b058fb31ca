// Who waits, who runs, and which pages they hold: admission, shared prefixes, preemption. Knows no model.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "kv/pages.h"
#include "kv/prefix_tree.h"

namespace cohort {

/// Sequences have turns: by priority, then by arrival; a level of priority is worth so many seconds of waiting, so that
/// a sequence waits for those only that have arrived or will arrive by a known time. Turns never change, and running
/// sequences give way in their reverse order: to one whose turn is before theirs and that needs a place among those
/// that run, and when pages run out. They take pages as their rows need them; when none is left, the prefix tree gives
/// up what nobody uses, then the last sequence gives up its pages and waits to be read again: it loses time, nothing
/// else. The first always has what it needs, because no sequence is accepted that could not run alone; so everyone gets
/// done.
class Roster {
 public:
  /// `aging`: seconds of waiting that are worth a level of priority; 0: no waiting is, and less urgent sequences wait
  /// as long as more urgent ones come.
  Roster(int32_t max_streams, int32_t pages, bool prefix_cache, double aging = 0);

  /// Its id is greater than those before.
  void add(Sequence sequence);
  /// Forgets a sequence, wherever it is, and frees its pages; unknown ids are ignored.
  void remove(SequenceId id);

  /// Admits who fits and returns the rows of each running sequence in the next step, guesses included; pages for them
  /// are reserved. Guesses for which there is no page are dropped: nobody gives way to them.
  std::vector<int32_t> plan(const PrefillBudget& budget);
  /// So many rows of running()[i] have run and hold its tokens: full pages can be shared now. (Rows of a canvas hold
  /// none: K and V of its positions are written over.)
  void ran(size_t i, int32_t rows);

  std::vector<Sequence>& running() { return running_; }  // in the order of their turns
  const std::vector<Sequence>& running() const { return running_; }
  size_t waiting() const { return waiting_.size(); }
  const std::map<int32_t, size_t>& waiting_by_priority() const { return waiting_by_priority_; }
  const PagePool& pages() const { return pool_; }
  int64_t preemptions() const { return preemptions_; }

 private:
  void wait(Sequence sequence);
  void forget_waiting(const Sequence& sequence);
  void admit();
  bool has_pages_for(const Sequence& sequence, size_t turn) const;
  int32_t pages_of_alone(const Sequence& sequence) const;
  int32_t new_pages_of(const Sequence& sequence) const;
  void adopt(Sequence& sequence);
  std::vector<Pending> pending() const;
  std::span<const int32_t> page_tokens(const Sequence& sequence, int32_t page) const;
  bool take_page(size_t i, std::vector<int32_t>& rows);
  void fit_guesses(Sequence& sequence, int32_t rows);
  void preempt_last();
  void give_up_pages(Sequence& sequence);
  int32_t obtainable() const { return pool_.available() + pool_.reusable(); }

  int32_t max_streams_;
  bool prefix_cache_;
  double aging_;
  PagePool pool_;
  PrefixTree tree_;
  std::deque<Sequence> waiting_;  // in the order of their turns, which come after those of all running ones
  std::map<int32_t, size_t> waiting_by_priority_;
  std::vector<Sequence> running_;
  int64_t preemptions_ = 0;
};

}  // namespace cohort
