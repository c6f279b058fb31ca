// Walking, measuring, indexing and slicing.
#include <algorithm>

#include "text/template/loop.h"
#include "text/template/operations.h"
#include "text/template/unicode.h"

namespace cohort::jinja {
namespace {

Value pair_of(Runtime& runtime, const std::pair<Value, Value>& entry) {
  return runtime.tuple({entry.first, entry.second});
}

Value view_item(Runtime& runtime, const ViewObject& view, size_t index) {
  const auto& entry = view.dict->entries[index];
  if (view.part == ViewObject::Part::items) return pair_of(runtime, entry);
  return view.part == ViewObject::Part::keys ? entry.first : entry.second;
}

/// Walks item(0), item(1), ... item(count - 1).
template <class Item>
Value indexed_iterator(Runtime& runtime, const Value& source, size_t count, Item item) {
  return runtime.iterator(source.depth(), [source, count, item, i = size_t{0}](Runtime& rt, Value& value) mutable {
    if (i >= count) return false;
    value = item(rt, source, i++);
    return true;
  });
}

Value iterator_of(Runtime& runtime, const Value& value, bool backwards) {
  auto walk = [&](size_t count, auto item) {
    return indexed_iterator(runtime, value, count,
                            [count, item, backwards](Runtime& rt, const Value& source, size_t i) {
                              return item(rt, source, backwards ? count - 1 - i : i);
                            });
  };
  switch (value.kind()) {
    case Kind::list:
    case Kind::tuple:
      return walk(items_of(value).size(), [](Runtime&, const Value& v, size_t i) { return items_of(v)[i]; });
    case Kind::dict:
      return walk(value.as<DictObject>().entries.size(),
                  [](Runtime&, const Value& v, size_t i) { return v.as<DictObject>().entries[i].first; });
    case Kind::view:
      return walk(value.as<ViewObject>().dict->entries.size(),
                  [](Runtime& rt, const Value& v, size_t i) { return view_item(rt, v.as<ViewObject>(), i); });
    case Kind::range:
      return walk(static_cast<size_t>(value.as<RangeObject>().length), [](Runtime&, const Value& v, size_t i) {
        const auto& range = v.as<RangeObject>();
        return Value::integer(range.start + static_cast<Int>(i) * range.step);
      });
    default:
      return walk(0, [](Runtime&, const Value&, size_t) { return Value(); });
  }
}

Value text_iterator(Runtime& runtime, const Value& text, bool backwards) {
  return runtime.iterator(0, [text, backwards, at = backwards ? text_of(text).size() : 0](Runtime& rt,
                                                                                          Value& value) mutable {
    const std::string& bytes = text_of(text);
    if (at == (backwards ? 0 : bytes.size())) return false;
    size_t begin = at;
    backwards ? decode_before(bytes, at) : decode(bytes, at);
    value = rt.string(bytes.substr(std::min(begin, at), std::max(begin, at) - std::min(begin, at)));  // never markup
    return true;
  });
}

/// Where a slice begins, ends and steps over `length` items, as slice.indices().
struct SliceBounds {
  Int start, stop, step, count;
};

SliceBounds slice_bounds(Int length, const Value& start, const Value& stop, const Value& step) {
  auto bound = [](const Value& value) {
    if (!value.is_none() && !value.is_integral())
      refuse("slice indices must be integers or None, not {}", type_name(value));
  };
  bound(start), bound(stop), bound(step);
  SliceBounds bounds{0, 0, step.is_none() ? 1 : step.integer(), 0};
  if (bounds.step == 0) refuse("slice step cannot be zero");
  bool forward = bounds.step > 0;
  auto clamp = [&](const Value& value, Int absent) {
    if (value.is_none()) return absent;
    Int index = value.integer();
    if (index < 0) index = index < -length ? -1 : index + length;
    Int lowest = forward ? 0 : -1, highest = forward ? length : length - 1;
    return std::clamp(index, lowest, std::max(lowest, highest));
  };
  bounds.start = clamp(start, forward ? 0 : length - 1);
  bounds.stop = clamp(stop, forward ? length : -1);
  bounds.step = std::clamp(bounds.step, -length - 1, length + 1);  // further is the same, and cannot overflow
  if (forward && bounds.start < bounds.stop) bounds.count = (bounds.stop - bounds.start - 1) / bounds.step + 1;
  if (!forward && bounds.start > bounds.stop) bounds.count = (bounds.start - bounds.stop - 1) / -bounds.step + 1;
  return bounds;
}

Value slice_text(Runtime& runtime, const Value& text, const SliceBounds& bounds) {
  if (bounds.step == 1) {
    return substring(runtime, text, static_cast<size_t>(bounds.start),
                     static_cast<size_t>(bounds.start + bounds.count));
  }
  const auto& object = text.as<StringObject>();
  runtime.spend_bytes(object.bytes.size());
  std::vector<size_t> offsets;  // of each code point; ASCII needs none
  if (!object.is_ascii()) {
    runtime.check_memory(object.length * sizeof(size_t));
    for (size_t position = 0; position < object.bytes.size(); decode(object.bytes, position)) {
      offsets.push_back(position);
    }
    offsets.push_back(object.bytes.size());
  }
  std::string bytes;
  for (Int i = 0; i < bounds.count; ++i) {
    auto index = static_cast<size_t>(bounds.start + i * bounds.step);
    if (object.is_ascii()) {
      bytes += object.bytes[index];
    } else {
      bytes.append(object.bytes, offsets[index], offsets[index + 1] - offsets[index]);
    }
  }
  return string_like(runtime, text, std::move(bytes));
}

}  // namespace

std::optional<Int> length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return static_cast<Int>(value.as<StringObject>().length);
    case Kind::list:
    case Kind::tuple:
      return static_cast<Int>(items_of(value).size());
    case Kind::dict:
      return static_cast<Int>(value.as<DictObject>().entries.size());
    case Kind::range:
      return value.as<RangeObject>().length;
    case Kind::view:
      return static_cast<Int>(value.as<ViewObject>().dict->entries.size());
    default:
      return std::nullopt;
  }
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::range:
    case Kind::view:
    case Kind::iterator:
    case Kind::loop:
      return true;
    default:
      return false;
  }
}

Ref<IteratorObject> iterate(Runtime& runtime, const Value& value) {
  if (!is_iterable(value)) refuse("'{}' object is not iterable", type_name(value));
  Value iterator = value;
  if (value.is_string()) {
    iterator = text_iterator(runtime, value, false);
  } else if (!value.is(Kind::iterator) && !value.is(Kind::loop)) {
    iterator = iterator_of(runtime, value, false);
  }
  return Ref<IteratorObject>(&iterator.as<IteratorObject>());
}

std::vector<Value> collect(Runtime& runtime, const Value& value) {
  if (value.is(Kind::list) || value.is(Kind::tuple)) {
    runtime.check_memory(items_of(value).size() * sizeof(Value));
    runtime.spend(items_of(value).size());
    return items_of(value);
  }
  auto iterator = iterate(runtime, value);
  ListBuilder builder(runtime);
  for (Value item; iterator->next(runtime, item);) builder.push(std::move(item));
  return builder.take();
}

std::optional<Value> reversed(Runtime& runtime, const Value& value) {
  if (value.is_string()) return text_iterator(runtime, value, true);
  if (length(value)) return iterator_of(runtime, value, true);
  return std::nullopt;
}

Value slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is_undefined()) refuse("{}", value.as<UndefinedObject>().message);
  bool sequence = value.is_string() || value.is(Kind::list) || value.is(Kind::tuple) || value.is(Kind::range);
  if (!sequence) refuse("'{}' object cannot be sliced", type_name(value));
  SliceBounds bounds = slice_bounds(*length(value), start, stop, step);
  if (value.is_string()) return slice_text(runtime, value, bounds);
  if (value.is(Kind::range)) {
    const auto& range = value.as<RangeObject>();
    auto at = [&](Int i) { return range.start + i * range.step; };
    return runtime.range(at(bounds.start), at(bounds.stop), range.step * bounds.step);
  }
  const auto& items = items_of(value);
  runtime.check_memory(static_cast<size_t>(bounds.count) * sizeof(Value));
  std::vector<Value> part;
  part.reserve(static_cast<size_t>(bounds.count));
  for (Int i = 0; i < bounds.count; ++i) part.push_back(items[static_cast<size_t>(bounds.start + i * bounds.step)]);
  return value.is(Kind::list) ? runtime.list(std::move(part)) : runtime.tuple(std::move(part));
}

Value substring(Runtime& runtime, const Value& text, size_t begin, size_t end) {
  const auto& object = text.as<StringObject>();
  if (object.is_ascii()) return string_like(runtime, text, object.bytes.substr(begin, end - begin));
  runtime.spend_bytes(object.bytes.size());
  size_t first = byte_offset(object.bytes, begin);
  size_t size = byte_offset(std::string_view(object.bytes).substr(first), end - begin);
  return string_like(runtime, text, object.bytes.substr(first, size));
}

}  // namespace cohort::jinja
