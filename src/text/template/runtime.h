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

/// Bytes that no object holds yet, charged to the memory limit until the end of the scope.
class Borrowed {
 public:
  explicit Borrowed(Runtime& runtime) : runtime_(runtime) {}
  Borrowed(Runtime& runtime, size_t bytes) : runtime_(runtime) { add(bytes); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() { give_back(); }
  void add(size_t bytes) {
    runtime_.borrow(bytes);
    bytes_ += bytes;
  }
  void give_back() { runtime_.give_back(std::exchange(bytes_, 0)); }

 private:
  Runtime& runtime_;
  size_t bytes_ = 0;
};

/// Text that grows within the memory limit, and within one of its own if it is the output.
class Text {
 public:
  explicit Text(Runtime& runtime, size_t limit = ~size_t{0}) : runtime_(runtime), borrowed_(runtime), limit_(limit) {}
  void append(std::string_view text) {
    reserve(text.size());
    bytes_.append(text);
  }
  void append(size_t count, char byte) {
    reserve(count);
    bytes_.append(count, byte);
  }
  Runtime& runtime() const { return runtime_; }
  std::string take() {
    borrowed_.give_back();
    return std::move(bytes_);
  }

 private:
  void reserve(size_t count) {
    if (count > limit_ - bytes_.size()) fail_limit();
    borrowed_.add(count);
  }
  [[noreturn]] void fail_limit() const;
  Runtime& runtime_;
  Borrowed borrowed_;
  size_t limit_;
  std::string bytes_;
};

/// A list that grows within the memory limit.
class ListBuilder {
 public:
  explicit ListBuilder(Runtime& runtime) : runtime_(runtime), borrowed_(runtime) {}
  void push(Value value) {
    runtime_.spend();
    borrowed_.add(sizeof(Value));
    items_.push_back(std::move(value));
  }
  const std::vector<Value>& items() const { return items_; }
  std::vector<Value> take() {
    borrowed_.give_back();
    return std::exchange(items_, {});
  }

 private:
  Runtime& runtime_;
  Borrowed borrowed_;
  std::vector<Value> items_;
};

}  // namespace cohort::jinja
