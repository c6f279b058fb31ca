// Truth, equality, order, membership, hashes and dicts.
#include <cmath>
#include <compare>
#include <functional>

#include "text/template/operations.h"
#include "text/template/text_tools.h"

namespace cohort::jinja {
namespace {

constexpr size_t kScanLimit = 8;  // dicts up to this size are searched in a row: quicker than hashing the key

std::partial_ordering order_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() <=> b.integer();
  if (a.is(Kind::floating) && b.is(Kind::floating)) return a.floating() <=> b.floating();
  if (a.is(Kind::floating)) {
    const std::partial_ordering reversed = order_numbers(b, a);
    return std::is_lt(reversed)   ? std::partial_ordering::greater
           : std::is_gt(reversed) ? std::partial_ordering::less
                                  : reversed;
  }
  // An integer against a float, exactly: by their integral parts, then by the fraction.
  double f = b.floating();
  constexpr double kBeyond = 0x1p127;
  if (std::isnan(f)) return std::partial_ordering::unordered;
  if (f >= kBeyond) return std::partial_ordering::less;
  if (f < -kBeyond) return std::partial_ordering::greater;
  double whole = std::trunc(f);
  if (auto order = a.integer() <=> static_cast<Int>(whole); std::is_neq(order)) return order;
  return whole <=> f;
}

bool satisfies(std::partial_ordering order, Comparison comparison) {
  switch (comparison) {
    case Comparison::lt:
      return std::is_lt(order);
    case Comparison::le:
      return std::is_lteq(order);
    case Comparison::gt:
      return std::is_gt(order);
    default:
      return std::is_gteq(order);
  }
}

std::string_view symbol(Comparison comparison) {
  constexpr std::string_view kSymbols[] = {"==", "!=", "<", "<=", ">", ">="};
  return kSymbols[static_cast<size_t>(comparison)];
}

/// Identity, or equality: how Python's containers find an element.
bool same(Runtime& runtime, const Value& a, const Value& b) {
  return (a.object() != nullptr && a.object() == b.object()) || equal(runtime, a, b);
}

bool ordered(Runtime& runtime, Comparison comparison, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return satisfies(order_numbers(a, b), comparison);
  if (a.is_undefined()) refuse("{}", a.as<UndefinedObject>().message);
  if (b.is_undefined()) refuse("{}", b.as<UndefinedObject>().message);
  if (a.is_string() && b.is_string()) {
    runtime.spend_bytes(std::min(text_of(a).size(), text_of(b).size()));
    return satisfies(text_of(a) <=> text_of(b), comparison);  // the order of UTF-8 is the order of code points
  }
  bool sequences = a.kind() == b.kind() && (a.is(Kind::list) || a.is(Kind::tuple));
  if (!sequences) {
    refuse("'{}' is not supported between instances of '{}' and '{}'", symbol(comparison), type_name(a), type_name(b));
  }
  const auto &x = items_of(a), &y = items_of(b);
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!same(runtime, x[i], y[i])) return ordered(runtime, comparison, x[i], y[i]);
  }
  return satisfies(x.size() <=> y.size(), comparison);
}

bool equal_sequences(Runtime& runtime, const std::vector<Value>& x, const std::vector<Value>& y) {
  if (x.size() != y.size()) return false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!same(runtime, x[i], y[i])) return false;
  }
  return true;
}

bool equal_dicts(Runtime& runtime, const DictObject& x, const DictObject& y) {
  if (x.entries.size() != y.entries.size()) return false;
  for (const auto& [key, value] : x.entries) {
    const Value* other = y.find(runtime, key);
    if (other == nullptr || !same(runtime, value, *other)) return false;
  }
  return true;
}

bool equal_ranges(const RangeObject& x, const RangeObject& y) {
  return x.length == y.length && (x.length == 0 || (x.start == y.start && (x.length == 1 || x.step == y.step)));
}

bool equal_views(Runtime& runtime, const Value& a, const Value& b) {
  const auto &x = a.as<ViewObject>(), &y = b.as<ViewObject>();
  if (x.part == ViewObject::Part::values || x.part != y.part) return false;
  if (x.dict->entries.size() != y.dict->entries.size()) return false;
  if (x.part == ViewObject::Part::items) return equal_dicts(runtime, *x.dict, *y.dict);
  for (const auto& entry : x.dict->entries) {
    if (y.dict->find(runtime, entry.first) == nullptr) return false;
  }
  return true;
}

bool view_contains(Runtime& runtime, const ViewObject& view, const Value& item) {
  switch (view.part) {
    case ViewObject::Part::keys:
      return view.dict->find(runtime, item) != nullptr;
    case ViewObject::Part::values:
      for (const auto& entry : view.dict->entries) {
        if (same(runtime, entry.second, item)) return true;
      }
      return false;
    default: {
      if (!item.is(Kind::tuple) || items_of(item).size() != 2) return false;
      const Value* value = view.dict->find(runtime, items_of(item)[0]);
      return value != nullptr && same(runtime, *value, items_of(item)[1]);
    }
  }
}

void check_hashable(Runtime& runtime, const Value& key) {
  if (key.is(Kind::tuple) || key.is(Kind::list) || key.is(Kind::dict) || key.is(Kind::view)) hash(runtime, key);
}

bool range_contains(const RangeObject& range, const Value& item) {
  if (!item.is_number()) return false;
  constexpr double kExact = 0x1p100;  // far beyond the bounds of any range, far from overflow
  if (std::abs(item.number()) > kExact) return false;
  Int number = item.integer();
  if (item.is(Kind::floating)) {
    double f = item.floating();
    if (std::trunc(f) != f) return false;  // also NaN
    number = static_cast<Int>(f);
  }
  Int distance = number - range.start;
  return distance % range.step == 0 && distance / range.step >= 0 && distance / range.step < range.length;
}

}  // namespace

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.integer() != 0;
    case Kind::floating:
      return value.floating() != 0;
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::range:
    case Kind::view:
      return *length(value) != 0;
    default:
      return true;
  }
}

bool equal(Runtime& runtime, const Value& a, const Value& b) {
  runtime.spend();
  if (a.is_number() && b.is_number()) return std::is_eq(order_numbers(a, b));
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::none:
    case Kind::undefined:
      return true;
    case Kind::string:
      if (text_of(a).size() != text_of(b).size()) return false;
      runtime.spend_bytes(text_of(a).size());
      return text_of(a) == text_of(b);
    case Kind::list:
    case Kind::tuple:
      return a.object() == b.object() || equal_sequences(runtime, items_of(a), items_of(b));
    case Kind::dict:
      return a.object() == b.object() || equal_dicts(runtime, a.as<DictObject>(), b.as<DictObject>());
    case Kind::range:
      return equal_ranges(a.as<RangeObject>(), b.as<RangeObject>());
    case Kind::view:
      return a.object() == b.object() || equal_views(runtime, a, b);
    default:
      return a.object() == b.object();
  }
}

bool compare(Runtime& runtime, Comparison comparison, const Value& a, const Value& b) {
  runtime.spend();
  switch (comparison) {
    case Comparison::eq:
      return equal(runtime, a, b);
    case Comparison::ne:
      return !equal(runtime, a, b);
    case Comparison::in:
      return contains(runtime, b, a);
    case Comparison::not_in:
      return !contains(runtime, b, a);
    default:
      return ordered(runtime, comparison, a, b);
  }
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::string:
      if (!item.is_string()) refuse("'in <string>' requires string as left operand, not {}", type_name(item));
      runtime.spend_bytes(text_of(container).size());
      return find_text(text_of(container), text_of(item)) != std::string::npos;
    case Kind::dict:
      return container.as<DictObject>().find(runtime, item) != nullptr;
    case Kind::range:
      return range_contains(container.as<RangeObject>(), item);
    case Kind::view:
      return view_contains(runtime, container.as<ViewObject>(), item);
    case Kind::undefined:
      return false;
    default:
      break;
  }
  if (!is_iterable(container)) refuse("argument of type '{}' is not iterable", type_name(container));
  auto iterator = iterate(runtime, container);
  for (Value element; iterator->next(runtime, element);) {
    if (same(runtime, element, item)) return true;
  }
  return false;
}

size_t hash(Runtime& runtime, const Value& value) {
  runtime.spend();
  auto mix = [](size_t a, size_t b) { return (a ^ b) * 0x9E3779B97F4A7C15u + (a >> 29); };
  switch (value.kind()) {
    case Kind::none:
    case Kind::undefined:
      return static_cast<size_t>(value.kind());
    case Kind::boolean:
    case Kind::integer:
      return mix(static_cast<size_t>(value.integer()), static_cast<size_t>(value.integer() >> 64));
    case Kind::floating: {
      double f = value.floating();  // equal numbers have equal hashes
      if (std::trunc(f) == f && std::abs(f) < 0x1p127) return hash(runtime, Value::integer(static_cast<Int>(f)));
      return std::hash<double>{}(f);
    }
    case Kind::string:
      runtime.spend_bytes(text_of(value).size());
      return std::hash<std::string>{}(text_of(value));
    case Kind::tuple: {
      size_t result = 1;
      for (const Value& item : items_of(value)) result = mix(result, hash(runtime, item));
      return result;
    }
    case Kind::list:
    case Kind::dict:
    case Kind::view:
      refuse("unhashable type: '{}'", type_name(value));
    case Kind::range: {
      const auto& range = value.as<RangeObject>();
      return static_cast<size_t>(range.length == 0 ? 0 : range.start * 31 + range.length);
    }
    default:
      return std::hash<const void*>{}(value.object());
  }
}

const Value* DictObject::find(Runtime& runtime, const Value& key) const {
  check_hashable(runtime, key);
  size_t at = locate(runtime, key);
  return at < entries.size() ? &entries[at].second : nullptr;
}

size_t DictObject::locate(Runtime& runtime, const Value& key) const {
  if (index_.empty()) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (equal(runtime, entries[i].first, key)) return i;
    }
    return entries.size();
  }
  size_t mask = index_.size() - 1;
  for (size_t slot = hash(runtime, key) & mask; index_[slot] != 0; slot = (slot + 1) & mask) {
    if (equal(runtime, entries[index_[slot] - 1].first, key)) return index_[slot] - 1;
  }
  return entries.size();
}

void DictObject::set(Runtime& runtime, Value key, Value value) {
  check_hashable(runtime, key);
  size_t at = locate(runtime, key);
  if (at < entries.size()) {
    entries[at].second = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() <= kScanLimit) return;
  if (entries.size() * 2 > index_.size()) {
    rebuild_index(runtime);
  } else {
    size_t mask = index_.size() - 1, slot = hash(runtime, entries.back().first) & mask;
    while (index_[slot] != 0) slot = (slot + 1) & mask;
    index_[slot] = static_cast<uint32_t>(entries.size());
  }
}

void DictObject::rebuild_index(Runtime& runtime) {
  size_t size = 32;
  while (size < entries.size() * 4) size *= 2;
  index_.assign(size, 0);
  for (size_t i = 0; i < entries.size(); ++i) {
    size_t slot = hash(runtime, entries[i].first) & (size - 1);
    while (index_[slot] != 0) slot = (slot + 1) & (size - 1);
    index_[slot] = static_cast<uint32_t>(i + 1);
  }
}

const Value* NamespaceObject::find(std::string_view name) const {
  for (const auto& attribute : attributes) {
    if (attribute.first == name) return &attribute.second;
  }
  return nullptr;
}

void NamespaceObject::set(std::string_view name, Value value) {
  for (auto& attribute : attributes) {
    if (attribute.first == name) {
      attribute.second = std::move(value);
      return;
    }
  }
  attributes.emplace_back(std::string(name), std::move(value));
}

}  // namespace cohort::jinja
