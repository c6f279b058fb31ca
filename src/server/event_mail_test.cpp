#include "server/event_mail.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <thread>

namespace cohort::server {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kLong{10};

/// A thread that runs what it is given in order.
class Runner {
 public:
  Runner() : thread_([this] { work(); }) {}
  ~Runner() {
    {
      const std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  Deliver deliver() {
    return [this](std::function<void()> task) {
      {
        const std::scoped_lock lock(mutex_);
        tasks_.push_back(std::move(task));
      }
      ++calls;
      wake_.notify_one();
    };
  }
  std::atomic<int> calls{0};

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (stop_) return;
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

TokenEvent event_of(int32_t index) {
  TokenEvent event;
  event.index = index;
  return event;
}

/// Keeps what came, and in how many pieces.
struct Box {
  std::mutex mutex;
  std::vector<int32_t> indices;
  int pieces = 0;
  std::shared_ptr<const EventHandler> handler = std::make_shared<const EventHandler>([this](auto events) {
    const std::scoped_lock lock(mutex);
    for (const TokenEvent& event : events) indices.push_back(event.index);
    ++pieces;
  });
  size_t size() {
    const std::scoped_lock lock(mutex);
    return indices.size();
  }
  bool wait_for(size_t count) {
    for (const auto end = Clock::now() + kLong; Clock::now() < end;) {
      if (size() >= count) return true;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return false;
  }
};

TEST(EventMail, EveryLetterArrivesOnceAndInOrder) {
  Runner runner;
  const auto mail = std::make_shared<EventMail>(runner.deliver());
  Box a, b;
  constexpr int kSteps = 3000;
  std::vector<EventMail::Letter> letters;
  for (int i = 0; i < kSteps; ++i) {
    letters.push_back({a.handler, event_of(i)});
    if (i % 3 != 0) letters.push_back({b.handler, event_of(i)});
    mail->send(letters, i % 97 == 0);
    EXPECT_TRUE(letters.empty());
    if (i % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(12));  // the thread goes meanwhile
  }
  ASSERT_TRUE(a.wait_for(kSteps) && b.wait_for(kSteps - kSteps / 3));
  for (int i = 0; i < kSteps; ++i) EXPECT_EQ(a.indices[static_cast<size_t>(i)], i);
  EXPECT_TRUE(std::ranges::is_sorted(b.indices));
  EXPECT_LT(a.pieces, kSteps / 2) << "short steps share a delivery";
}

TEST(EventMail, LettersThatAreNotUrgentArriveTooAndUrgentOnesTakeThemAlong) {
  Runner runner;
  const auto mail = std::make_shared<EventMail>(runner.deliver());
  Box box;
  std::vector<EventMail::Letter> letters;
  for (int i = 0; i < 20; ++i) {
    letters.push_back({box.handler, event_of(i)});
    mail->send(letters, false);
    ASSERT_TRUE(box.wait_for(static_cast<size_t>(i) + 1));
  }
  letters.push_back({box.handler, event_of(20)});
  mail->send(letters, false);
  letters.push_back({box.handler, event_of(21)});
  mail->send(letters, true);
  ASSERT_TRUE(box.wait_for(22));
  EXPECT_EQ(box.indices.back(), 21);
}

TEST(EventMail, NobodyWaitsForLettersThatDoNotCome) {
  Runner runner;
  const auto mail = std::make_shared<EventMail>(runner.deliver());
  Box box;
  std::vector<EventMail::Letter> letters{{box.handler, event_of(0)}};
  mail->send(letters, true);
  ASSERT_TRUE(box.wait_for(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const int calls = runner.calls;
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(runner.calls, calls) << "the thread goes on looking";
}

TEST(EventMail, WhatWaitsAtTheEndGoesWithWhoeverDelivers) {
  std::vector<std::function<void()>> tasks;  // a thread that has ended
  const auto mail = std::make_shared<EventMail>([&](std::function<void()> task) { tasks.push_back(std::move(task)); });
  auto owned = std::make_shared<int>(0);
  const auto handler = std::make_shared<const EventHandler>([owned, mail](const std::vector<TokenEvent>&) {});
  std::vector<EventMail::Letter> letters{{handler, event_of(0)}};
  mail->send(letters, true);
  mail->close();
  const std::weak_ptr<int> watched = std::exchange(owned, nullptr);
  EXPECT_FALSE(watched.expired());
  tasks.clear();
  EXPECT_EQ(handler.use_count(), 1) << "the mail keeps letters that own it";
}

}  // namespace
}  // namespace cohort::server
