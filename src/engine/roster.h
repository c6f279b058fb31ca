// Who waits, who runs, and which pages they hold: admission, shared prefixes, preemption. Knows no model.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "kv/pages.h"
#include "kv/prefix_tree.h"

namespace cohort {

/// Sequences take pages as their rows need them. When none is left, the prefix tree gives up what nobody uses, then the
/// youngest sequence gives up its pages and waits to be read again: it loses time, nothing else. The oldest always has
/// what it needs, because no sequence is accepted that could not run alone; so everyone gets done.
class Roster {
 public:
  Roster(int32_t max_streams, int32_t pages, bool prefix_cache);

  void add(Sequence sequence) { waiting_.push_back(std::move(sequence)); }
  /// Forgets a sequence, wherever it is, and frees its pages; unknown ids are ignored.
  void remove(SequenceId id);

  /// Admits who fits and returns the rows of each running sequence in the next step; pages for them are reserved.
  std::vector<int32_t> plan(const PrefillBudget& budget);
  /// The rows of running()[i] have run: full pages can be shared now.
  void ran(size_t i, int32_t rows);

  std::vector<Sequence>& running() { return running_; }  // in order of arrival
  const std::vector<Sequence>& running() const { return running_; }
  size_t waiting() const { return waiting_.size(); }
  const PagePool& pages() const { return pool_; }
  int64_t preemptions() const { return preemptions_; }

 private:
  void admit();
  int32_t new_pages_of(const Sequence& sequence) const;
  void adopt(Sequence& sequence);
  std::vector<Pending> pending() const;
  std::span<const int32_t> page_tokens(const Sequence& sequence, int32_t page) const;
  bool take_page(size_t i, std::vector<int32_t>& rows);
  void preempt_youngest();
  void give_up_pages(Sequence& sequence);
  int32_t obtainable() const { return pool_.available() + pool_.reusable(); }

  int32_t max_streams_;
  bool prefix_cache_;
  PagePool pool_;
  PrefixTree tree_;
  std::deque<Sequence> waiting_;
  std::vector<Sequence> running_;
  int64_t preemptions_ = 0;
};

}  // namespace cohort
