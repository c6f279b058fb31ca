#include "server/event_mail.h"

#include <algorithm>
#include <chrono>
#include <iterator>

namespace cohort::server {
namespace {

using Clock = std::chrono::steady_clock;

/// Between two looks: thirty times as long as the last delivery took, so that deliveries take a thirtieth of a core,
/// but within these. The upper one bounds how long a token waits for others: a reader does not see it.
constexpr std::chrono::microseconds kSoonest{1000}, kLatest{5000};
constexpr int kRest = 60;
/// Without a letter for so long, the thread goes. Beside steps that long a wake-up is little.
constexpr std::chrono::milliseconds kQuiet{4};
/// For so long at once, so that whoever wants to end the thread gets to.
constexpr std::chrono::milliseconds kTurn{50};

}  // namespace

void EventMail::send(std::vector<Letter>& letters, bool urgent) {
  if (letters.empty()) return;
  bool call = false;
  {
    const std::scoped_lock lock(mutex_);
    if (waiting_.empty()) {
      waiting_.swap(letters);
    } else {
      std::ranges::move(letters, std::back_inserter(waiting_));
    }
    call = !std::exchange(delivering_, true);
    urgent_ |= urgent;
  }
  letters.clear();
  if (call) {
    deliver_([self = shared_from_this()] { self->deliver(); });
  } else if (urgent) {
    wake_.notify_one();
  }
}

void EventMail::close() {
  std::vector<Letter> letters;
  {
    const std::scoped_lock lock(mutex_);
    letters.swap(waiting_);
  }
  if (!letters.empty()) deliver_([letters = std::move(letters)]() mutable { hand_out(letters); });
}

void EventMail::hand_out(std::vector<Letter>& letters) {
  // Several steps' letters: those of one sequence together. Their order stays.
  std::ranges::stable_sort(letters, {}, [](const Letter& letter) { return letter.handler.get(); });
  for (auto first = letters.begin(); first != letters.end();) {
    const auto last = std::find_if(first, letters.end(), [&](const Letter& l) { return l.handler != first->handler; });
    std::vector<TokenEvent> events;
    events.reserve(static_cast<size_t>(last - first));
    for (auto letter = first; letter != last; ++letter) events.push_back(std::move(letter->event));
    (*first->handler)(std::move(events));
    first = last;
  }
  letters.clear();
}

void EventMail::deliver() {
  std::vector<Letter> letters;
  const auto begin = Clock::now();
  auto now = begin, last = begin;  // last: when there were letters
  auto rest = Clock::duration(kSoonest);
  std::unique_lock lock(mutex_);
  while (now - begin < kTurn) {
    letters.swap(waiting_);
    urgent_ = false;
    if (!letters.empty()) {
      lock.unlock();
      hand_out(letters);
      last = Clock::now();
      rest = std::clamp<Clock::duration>(kRest * (last - now), kSoonest, kLatest);
      lock.lock();
    } else if (now - last >= kQuiet) {
      delivering_ = false;
      return;
    }
    wake_.wait_for(lock, rest, [this] { return urgent_; });
    now = Clock::now();
  }
  lock.unlock();
  deliver_([self = shared_from_this()] { self->deliver(); });
}

}  // namespace cohort::server
