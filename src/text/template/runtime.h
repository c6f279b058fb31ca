// What one rendering has to spend, the makers of its values, and how its operations fail. Failures are exceptions
// inside this folder (an interpreter fails at any depth) and become an Error at Template::render.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "text/template/template.h"
#include "text/template/value.h"

namespace cohort::jinja {

struct Failure {
  ErrorCode code;
  std::string message;
};

/// An operation that Python or the sandbox would refuse.
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{ErrorCode::invalid_argument, fmt::format(format, std::forward<Args>(args)...)};
}

class Runtime {
 public:
  Runtime(const TemplateLimits& limits, const TemplateClock& clock) : limits_(limits), clock_(clock) {
    meter_.limit = limits.memory_bytes;
  }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime() {
    for (auto& object : mutable_objects_) object->clear();
  }

  const TemplateLimits& limits() const { return limits_; }
  std::tm now() const { return clock_(); }

  void spend(size_t steps = 1) {
    if (steps > limits_.steps - steps_) fail_steps();
    steps_ += steps;
  }
  /// Walking `bytes` of text costs a step for each 64.
  void spend_bytes(size_t bytes) { spend(1 + bytes / 64); }
  /// Fails unless `bytes` more fit into the memory limit.
  void check_memory(size_t bytes) const {
    if (bytes > meter_.limit - meter_.used) fail_memory(bytes);
  }
  /// One more evaluation inside another; pair with leave(). See RecursionGuard.
  void enter() {
    if (++depth_ > limits_.depth) fail_depth();
  }
  void leave() { --depth_; }
  size_t memory_left() const { return meter_.limit - meter_.used; }
  /// Charges `bytes` that no object holds yet; give them back with the same number.
  void borrow(size_t bytes) {
    check_memory(bytes);
    meter_.used += bytes;
  }
  void give_back(size_t bytes) { meter_.used -= bytes; }
  /// Keeps an object that can change until the end, where its references are cleared.
  void keep(Ref<MutableObject> object) { mutable_objects_.push_back(std::move(object)); }

  /// A new object that holds about `bytes` beyond its own size and nests `depth` deep.
  template <class T>
  Ref<T> make(size_t bytes, uint32_t depth) {
    if (depth > limits_.value_depth) fail_value_depth();
    borrow(sizeof(T) + bytes);
    Ref<T> object;
    try {
      object = Ref<T>(new T);
    } catch (...) {
      give_back(sizeof(T) + bytes);
      throw;
    }
    object->meter = &meter_;
    object->charged = sizeof(T) + bytes;
    object->depth = depth;
    return object;
  }

  Value string(std::string bytes, bool markup = false);
  Value string(std::string_view bytes) { return string(std::string(bytes)); }
  Value string(const char* bytes) { return string(std::string(bytes)); }
  Value list(std::vector<Value> items) { return sequence(Kind::list, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::tuple, std::move(items)); }
  Value undefined(std::string message);
  Value undefined_name(std::string_view name) { return undefined(fmt::format("'{}' is undefined", name)); }
  Value range(Int start, Int stop, Int step);
  Value view(ViewObject::Part part, Ref<DictObject> dict);
  Ref<DictObject> dict();
  /// The value of a finished dict.
  Value dict(Ref<DictObject> dict);
  template <class Next>
  Value iterator(uint32_t depth, Next next);

 private:
  Value sequence(Kind kind, std::vector<Value> items);
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_memory(size_t bytes) const;
  [[noreturn]] void fail_value_depth() const;
  [[noreturn]] void fail_depth();

  Meter meter_;  // outlives every object of the rendering
  const TemplateLimits& limits_;
  const TemplateClock& clock_;
  size_t steps_ = 0, depth_ = 0;
  std::vector<Ref<MutableObject>> mutable_objects_;
};

class RecursionGuard {
 public:
  explicit RecursionGuard(Runtime& runtime) : runtime_(runtime) { runtime_.enter(); }
  RecursionGuard(const RecursionGuard&) = delete;
  RecursionGuard& operator=(const RecursionGuard&) = delete;
  ~RecursionGuard() { runtime_.leave(); }

 private:
  Runtime& runtime_;
};

/// An iterator that calls `next(runtime, value)`, like IteratorObject::next, until it returns false.
template <class Next>
struct FunctionIterator : IteratorObject {
  bool next(Runtime& runtime, Value& value) override {
    runtime.spend();
    if (!function) return false;
    if ((*function)(runtime, value)) return true;
    function.reset();
    return false;
  }
  std::unique_ptr<Next> function;
};

template <class Next>
Value Runtime::iterator(uint32_t depth, Next next) {
  auto object = make<FunctionIterator<Next>>(sizeof(Next), depth + 1);
  object->function = std::make_unique<Next>(std::move(next));
  return {Kind::iterator, std::move(object)};
}

/// Text that grows within a limit: the memory left, or the limit of the output.
class Text {
 public:
  explicit Text(Runtime& runtime) : Text(runtime, runtime.memory_left(), "memory_bytes") {}
  Text(Runtime& runtime, size_t limit, std::string_view limit_name)
      : runtime_(runtime), limit_(limit), limit_name_(limit_name) {}
  void append(std::string_view text) {
    if (text.size() > limit_ - bytes_.size()) fail_limit();
    bytes_.append(text);
  }
  void append(size_t count, char byte) {
    if (count > limit_ - bytes_.size()) fail_limit();
    bytes_.append(count, byte);
  }
  size_t size() const { return bytes_.size(); }
  Runtime& runtime() const { return runtime_; }
  std::string take() { return std::move(bytes_); }

 private:
  [[noreturn]] void fail_limit() const;
  Runtime& runtime_;
  size_t limit_;
  std::string_view limit_name_;
  std::string bytes_;
};

/// A list that grows within the memory limit.
class ListBuilder {
 public:
  explicit ListBuilder(Runtime& runtime) : runtime_(runtime) {}
  ListBuilder(const ListBuilder&) = delete;
  ListBuilder& operator=(const ListBuilder&) = delete;
  ~ListBuilder() { runtime_.give_back(borrowed_); }
  void push(Value value) {
    runtime_.spend();
    runtime_.borrow(sizeof(Value));
    borrowed_ += sizeof(Value);
    items_.push_back(std::move(value));
  }
  std::vector<Value>& items() { return items_; }
  std::vector<Value> take() {
    runtime_.give_back(std::exchange(borrowed_, 0));
    return std::move(items_);
  }

 private:
  Runtime& runtime_;
  std::vector<Value> items_;
  size_t borrowed_ = 0;
};

}  // namespace cohort::jinja
