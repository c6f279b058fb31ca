// Values of a running template: Python's types as far as templates can meet them. Everything but the namespace is
// immutable, as in the sandbox. Objects are counted references, so that a loop that builds texts frees them as it goes;
// every object is charged to the meter of its rendering, and knows how deep it nests, so that no walk over a value can
// exhaust the stack.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/error.h"

namespace cohort::jinja {

class Runtime;

/// Python's integers, as far as 128 bits reach; beyond, operations fail.
using Int = __int128;

enum class Kind : uint8_t {
  missing,  // an unset variable or an argument that was not given; never seen by a template
  undefined,
  none,
  boolean,
  integer,
  floating,
  string,
  list,
  tuple,
  dict,
  range,
  view,      // dict.items(), keys(), values()
  iterator,  // a generator: can be walked once
  name_space,
  macro,
  function,  // a global function or the method of a value
  loop,
  joiner,
  cycler,
};

/// Bytes that one rendering holds.
struct Meter {
  size_t used = 0, limit = 0;
};

class Object {
 public:
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() {
    if (meter != nullptr) meter->used -= charged;
  }
  void retain() const { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() const {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  Meter* meter = nullptr;  // none for the constants of a program, which outlive renderings
  size_t charged = 0;
  uint32_t depth = 0;  // longest chain of objects below this one

 private:
  mutable std::atomic<uint32_t> references_{0};
};

/// A counted reference to an object.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) {
    if (object_ != nullptr) object_->retain();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
  Ref(Ref<U> other) : object_(other.detach()) {}  // NOLINT: a reference to a derived class is one to its base
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) object_->release();
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  T* detach() { return std::exchange(object_, nullptr); }

 private:
  T* object_ = nullptr;
};

class Value {
 public:
  Value() = default;
  static Value none() { return Value(Kind::none); }
  static Value boolean(bool value) {
    Value v(Kind::boolean);
    v.integer_ = value;
    return v;
  }
  static Value integer(Int value) {
    Value v(Kind::integer);
    v.integer_ = value;
    return v;
  }
  static Value floating(double value) {
    Value v(Kind::floating);
    v.floating_ = value;
    return v;
  }
  Value(Kind kind, Ref<Object> object) : object_(std::move(object)), kind_(kind) {}

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_missing() const { return kind_ == Kind::missing; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_string() const { return kind_ == Kind::string; }
  bool is_integral() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }  // bool is an int in Python
  bool is_number() const { return is_integral() || kind_ == Kind::floating; }

  bool boolean() const { return integer_ != 0; }
  Int integer() const { return integer_; }
  double floating() const { return floating_; }
  double number() const { return kind_ == Kind::floating ? floating_ : static_cast<double>(integer_); }
  template <class T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  Object* object() const { return object_.get(); }
  uint32_t depth() const { return object_ ? object_->depth : 0; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Ref<Object> object_;
  Kind kind_ = Kind::missing;
  union {
    Int integer_ = 0;
    double floating_;
  };
};

struct StringObject : Object {
  std::string bytes;    // UTF-8
  size_t length = 0;    // code points
  bool markup = false;  // markupsafe.Markup: made by |safe and |escape, escapes what is added to it
  bool is_ascii() const { return length == bytes.size(); }
};

struct UndefinedObject : Object {
  std::string message;  // what the error says when a template uses it
};

/// A list or a tuple.
struct ListObject : Object {
  std::vector<Value> items;
  bool is_group = false;  // the pair of |groupby, whose parts also have the names grouper and list
};

/// Keys are strings, numbers, None or tuples; entries keep their order of insertion.
struct DictObject : Object {
  std::vector<std::pair<Value, Value>> entries;

  const Value* find(Runtime& runtime, const Value& key) const;
  /// Sets a key while the dict is being made.
  void set(Runtime& runtime, Value key, Value value);

 private:
  size_t locate(Runtime& runtime, const Value& key) const;  // entries.size() if absent
  void rebuild_index(Runtime& runtime);
  std::vector<uint32_t> index_;  // open addressing, entry + 1; empty while a scan is as quick
};

struct RangeObject : Object {
  Int start = 0, stop = 0, step = 1;
  Int length = 0;
};

struct ViewObject : Object {
  enum class Part { keys, values, items } part = Part::keys;
  Ref<DictObject> dict;
};

/// Walks values once. next() sets `value` and returns true, or returns false at the end and ever after.
struct IteratorObject : Object {
  virtual bool next(Runtime& runtime, Value& value) = 0;
};

/// An object that can be part of a cycle, because it changes after it was made. The runtime breaks the cycles at its
/// end.
struct MutableObject : Object {
  virtual void clear() = 0;
};

struct NamespaceObject : MutableObject {
  std::vector<std::pair<std::string, Value>> attributes;
  mutable bool being_printed = false;  // it may contain itself
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
  void clear() override { attributes.clear(); }
};

struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

struct CyclerObject : Object {
  std::vector<Value> items;
  size_t position = 0;
};

inline const std::string& text_of(const Value& string) {
  return string.as<StringObject>().bytes;
}
inline std::vector<Value>& items_of(const Value& list) {
  return list.as<ListObject>().items;
}

/// Python's name of the type: "str", "dict", ...
std::string_view type_name(const Value& value);

}  // namespace cohort::jinja
