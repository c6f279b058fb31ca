// Filters of sequences and dicts.
#include <algorithm>
#include <memory>

#include "text/template/callable.h"
#include "text/template/lookup.h"
#include "text/template/operations.h"
#include "text/template/unicode.h"

namespace cohort::jinja {
namespace {

bool flag(const Arguments& arguments, size_t i) {
  return arguments.has(i) && truthy(arguments[i]);
}
/// The argument `reverse`, which Python wants to be a number; everything else is a flag by its truth.
bool reverse_flag(const Arguments& arguments, size_t i) {
  return arguments.has(i) && integer_argument(arguments[i], "reverse") != 0;
}

Value argument_or_none(const Arguments& arguments, size_t i) {
  return arguments.has(i) ? arguments[i] : Value::none();
}

Value default_value(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (!self.is_undefined() && (!flag(arguments, 1) || truthy(self))) return self;
  return arguments.has(0) ? arguments[0] : runtime.string("");
}

Value count(Runtime& runtime, const Value& self, Arguments&) {
  if (self.is(Kind::loop)) return get_attribute(runtime, self, runtime.string("length"));
  std::optional<Int> size = length(self);
  if (!size) refuse("object of type '{}' has no len()", type_name(self));
  return Value::integer(*size);
}

Value first(Runtime& runtime, const Value& self, Arguments&) {
  Value item;
  return iterate(runtime, self)->next(runtime, item) ? item : runtime.undefined("No first item, sequence was empty.");
}

Value last(Runtime& runtime, const Value& self, Arguments&) {
  std::optional<Value> backwards = reversed(runtime, self);
  if (!backwards) refuse("'{}' object is not reversible", type_name(self));
  Value item;
  return backwards->as<IteratorObject>().next(runtime, item) ? item
                                                             : runtime.undefined("No last item, sequence was empty.");
}

Value reverse(Runtime& runtime, const Value& self, Arguments&) {
  if (self.is_string()) return slice(runtime, self, Value::none(), Value::none(), Value::integer(-1));
  if (auto backwards = reversed(runtime, self)) return *backwards;
  std::vector<Value> items = collect(runtime, self);
  std::reverse(items.begin(), items.end());
  return runtime.list(std::move(items));
}

Value list(Runtime& runtime, const Value& self, Arguments&) {
  return runtime.list(collect(runtime, self));
}

Value join(Runtime& runtime, const Value& self, Arguments& arguments) {
  Value separator = arguments.has(0) ? to_string(runtime, arguments[0]) : runtime.string("");
  AttributePath path(runtime, argument_or_none(arguments, 1));
  Text out(runtime);
  bool is_first = true;
  auto iterator = iterate(runtime, self);
  for (Value item; iterator->next(runtime, item);) {
    if (!std::exchange(is_first, false)) out.append(text_of(separator));
    append_str(out, path.follow(runtime, item));
  }
  return runtime.string(out.take());
}

Value attr(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& name = text_argument(arguments[0], "the name of attr");
  if (self.is(Kind::dict) && !self.as<DictObject>().entries.empty()) {
    // Only attributes count: hide the items, which get_attribute would fall back to.
    return get_attribute(runtime, runtime.dict(runtime.dict()), runtime.string(name));
  }
  return get_attribute(runtime, self, arguments[0]);
}

Value items(Runtime& runtime, const Value& self, Arguments&) {
  return runtime.iterator(self.depth(), [self, source = Ref<IteratorObject>()](Runtime& rt, Value& value) mutable {
    if (self.is_undefined()) return false;
    if (!self.is(Kind::dict)) refuse("Can only get item pairs from a mapping.");
    if (!source) source = iterate(rt, rt.view(ViewObject::Part::items, Ref<DictObject>(&self.as<DictObject>())));
    return source->next(rt, value);
  });
}

Value batch(Runtime& runtime, const Value& self, Arguments& arguments) {
  Value size = arguments[0], fill = argument_or_none(arguments, 1);
  return runtime.iterator(std::max(self.depth(), fill.depth()) + 1, [self, size, fill, source = Ref<IteratorObject>(),
                                                                     row = std::unique_ptr<ListBuilder>()](
                                                                        Runtime& rt, Value& value) mutable {
    if (!source) {
      source = iterate(rt, self);
      row = std::make_unique<ListBuilder>(rt);
    }
    auto is_full = [&]() { return size.is_number() && static_cast<double>(row->items().size()) == size.number(); };
    for (Value item; source->next(rt, item);) {
      bool full = is_full();
      if (full) value = rt.list(row->take());
      row->push(std::move(item));
      if (full) return true;
    }
    if (row->items().empty()) return false;
    if (!fill.is_none()) {
      Int wanted = integer_argument(size, "the size of batch");
      while (static_cast<Int>(row->items().size()) < wanted) row->push(fill);
    }
    value = rt.list(row->take());
    return true;
  });
}

/// `count` lists of about the same size, the longer ones first.
Value slices(Runtime& runtime, const Value& self, Arguments& arguments) {
  Int parts = integer_argument(arguments[0], "the number of slices");
  Value fill = argument_or_none(arguments, 1);
  return runtime.iterator(std::max(self.depth(), fill.depth()) + 1, [self, parts, fill, all = Value(), part = Int{0}](
                                                                        Runtime& rt, Value& value) mutable {
    if (all.is_missing()) all = rt.list(collect(rt, self));
    if (parts == 0) refuse("slice needs at least 1 part");
    if (part >= parts) return false;
    auto size = static_cast<Int>(items_of(all).size());
    Int each = size / parts, longer = size % parts;
    Int begin = part * each + std::min(part, longer), end = begin + each + (part < longer ? 1 : 0);
    ListBuilder row(rt);
    for (Int i = begin; i < end; ++i) row.push(items_of(all)[static_cast<size_t>(i)]);
    if (!fill.is_none() && part >= longer) row.push(fill);
    ++part;
    value = rt.list(row.take());
    return true;
  });
}

struct Keyed {
  std::vector<Value> keys;
  Value item;
};

/// Sorts by one key, or by several as lists compare: equal ones first, which need no order.
void sort_by_keys(Runtime& runtime, std::vector<Keyed>& rows, bool as_lists, bool backwards) {
  auto before = [&](const Keyed& a, const Keyed& b) {
    if (!as_lists) return less(runtime, a.keys[0], b.keys[0]);
    for (size_t i = 0; i < a.keys.size(); ++i) {
      if (!equal(runtime, a.keys[i], b.keys[i])) return less(runtime, a.keys[i], b.keys[i]);
    }
    return false;
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const Keyed& a, const Keyed& b) { return backwards ? before(b, a) : before(a, b); });
}

std::vector<Value> items_of_rows(std::vector<Keyed> rows) {
  std::vector<Value> sorted;
  sorted.reserve(rows.size());
  for (Keyed& row : rows) sorted.push_back(std::move(row.item));
  return sorted;
}

Value sort(Runtime& runtime, const Value& self, Arguments& arguments) {
  bool case_sensitive = flag(arguments, 1);
  std::vector<AttributePath> paths;
  Value attribute = argument_or_none(arguments, 2);
  if (attribute.is_string()) {  // several attributes, between commas
    const std::string& names = text_of(attribute);
    for (size_t begin = 0, end = 0; begin <= names.size(); begin = end + 1) {
      end = std::min(names.find(',', begin), names.size());
      paths.emplace_back(runtime, runtime.string(names.substr(begin, end - begin)));
    }
  } else {
    paths.emplace_back(runtime, attribute);
  }
  std::vector<Value> items = collect(runtime, self);
  Borrowed borrowed(runtime, items.size() * (sizeof(Keyed) + paths.size() * sizeof(Value)));
  std::vector<Keyed> rows;
  for (Value& item : items) {
    Keyed row;
    for (const AttributePath& path : paths) row.keys.push_back(sort_key(runtime, path, case_sensitive, item));
    row.item = std::move(item);
    rows.push_back(std::move(row));
  }
  sort_by_keys(runtime, rows, true, reverse_flag(arguments, 0));
  return runtime.list(items_of_rows(std::move(rows)));
}

Value dictsort(Runtime& runtime, const Value& self, Arguments& arguments) {
  bool case_sensitive = flag(arguments, 0);
  std::string by = arguments.has(1) && arguments[1].is_string() ? text_of(arguments[1]) : arguments.has(1) ? "" : "key";
  if (by != "key" && by != "value") refuse("You can only sort by either \"key\" or \"value\"");
  if (self.is_undefined()) refuse("{}", self.as<UndefinedObject>().message);
  if (!self.is(Kind::dict)) refuse("dictsort needs a dict, not {}", type_name(self));
  Borrowed borrowed(runtime, self.as<DictObject>().entries.size() * (sizeof(Keyed) + sizeof(Value)));
  std::vector<Keyed> rows;
  for (const auto& [key, value] : self.as<DictObject>().entries) {
    Value by_value = sort_key(runtime, AttributePath(), case_sensitive, by == "key" ? key : value);
    rows.push_back({{by_value}, runtime.tuple({key, value})});
  }
  sort_by_keys(runtime, rows, false, reverse_flag(arguments, 2));
  return runtime.list(items_of_rows(std::move(rows)));
}

Value groupby(Runtime& runtime, const Value& self, Arguments& arguments) {
  AttributePath path(runtime, arguments[0]);
  Value fallback = arguments.has(1) && !arguments[1].is_none() ? arguments[1] : Value();
  bool case_sensitive = flag(arguments, 2);
  std::vector<Value> items = collect(runtime, self);
  Borrowed borrowed(runtime, items.size() * (sizeof(Keyed) + sizeof(Value)));
  std::vector<Keyed> rows;
  rows.reserve(items.size());
  for (Value& item : items) {
    rows.push_back({{sort_key(runtime, path, case_sensitive, item, fallback)}, item});
  }
  sort_by_keys(runtime, rows, false, false);
  ListBuilder groups(runtime);
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    ListBuilder members(runtime);
    for (end = begin; end < rows.size() && equal(runtime, rows[begin].keys[0], rows[end].keys[0]); ++end) {
      members.push(rows[end].item);
    }
    Value grouper = path.follow(runtime, rows[begin].item, fallback);
    Value group = runtime.tuple({std::move(grouper), runtime.list(members.take())});
    group.as<ListObject>().is_group = true;
    groups.push(std::move(group));
    if (end == begin) break;  // a key that does not equal itself (NaN) would go on for ever
  }
  return runtime.list(groups.take());
}

Value unique(Runtime& runtime, const Value& self, Arguments& arguments) {
  AttributePath path(runtime, argument_or_none(arguments, 1));
  bool case_sensitive = flag(arguments, 0);
  return runtime.iterator(self.depth() + 1, [self, path, case_sensitive, source = Ref<IteratorObject>(),
                                             seen = Ref<DictObject>()](Runtime& rt, Value& value) mutable {
    if (!source) source = iterate(rt, self), seen = rt.dict();
    for (Value item; source->next(rt, item);) {
      Value key = sort_key(rt, path, case_sensitive, item);
      if (seen->find(rt, key) != nullptr) continue;
      rt.borrow(2 * sizeof(Value));
      seen->charged += 2 * sizeof(Value);
      seen->set(rt, std::move(key), Value::none());
      value = std::move(item);
      return true;
    }
    return false;
  });
}

template <Comparison better>
Value extreme(Runtime& runtime, const Value& self, Arguments& arguments) {
  bool case_sensitive = flag(arguments, 0);
  AttributePath path(runtime, argument_or_none(arguments, 1));
  auto iterator = iterate(runtime, self);
  Value best;
  if (!iterator->next(runtime, best)) return runtime.undefined("No aggregated item, sequence was empty.");
  Value best_key = sort_key(runtime, path, case_sensitive, best);
  for (Value item; iterator->next(runtime, item);) {
    Value key = sort_key(runtime, path, case_sensitive, item);
    if (!compare(runtime, better, key, best_key)) continue;
    best = item;
    best_key = std::move(key);
  }
  return best;
}

Value sum(Runtime& runtime, const Value& self, Arguments& arguments) {
  AttributePath path(runtime, argument_or_none(arguments, 0));
  Value total = arguments.has(1) ? arguments[1] : Value::integer(0);
  auto iterator = iterate(runtime, self);
  if (total.is_string()) refuse("sum() cannot add strings, use join");
  for (Value item; iterator->next(runtime, item);) total = add(runtime, total, path.follow(runtime, item));
  return total;
}

constexpr Native kFilters[] = {
    {"length", "", count},
    {"count", "", count},
    {"default", "default_value= boolean=", default_value},
    {"d", "default_value= boolean=", default_value},
    {"join", "d= attribute=", join},
    {"first", "", first},
    {"last", "", last},
    {"list", "", list},
    {"items", "", items},
    {"reverse", "", reverse},
    {"sort", "reverse= case_sensitive= attribute=", sort},
    {"dictsort", "case_sensitive= by= reverse=", dictsort},
    {"unique", "case_sensitive= attribute=", unique},
    {"min", "case_sensitive= attribute=", extreme<Comparison::lt>},
    {"max", "case_sensitive= attribute=", extreme<Comparison::gt>},
    {"sum", "attribute= start=", sum},
    {"groupby", "attribute default= case_sensitive=", groupby},
    {"batch", "linecount fill_with=", batch},
    {"slice", "slices fill_with=", slices},
    {"attr", "name", attr},
};

}  // namespace

AttributePath::AttributePath(Runtime& runtime, const Value& attribute) {
  if (attribute.is_none()) return;
  if (!attribute.is_string()) {
    keys_.push_back(attribute);
    return;
  }
  const std::string& path = text_of(attribute);
  for (size_t begin = 0, end = 0; begin <= path.size(); begin = end + 1) {
    end = std::min(path.find('.', begin), path.size());
    std::string part = path.substr(begin, end - begin);
    bool is_index = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    keys_.push_back(is_index ? Value::integer(parse_integer(part, 10).value()) : runtime.string(part));
  }
}

Value AttributePath::follow(Runtime& runtime, Value item, const Value& fallback) const {
  for (const Value& key : keys_) {
    item = get_item(runtime, item, key);
    if (item.is_undefined() && !fallback.is_missing()) item = fallback;
  }
  return item;
}

Value sort_key(Runtime& runtime, const AttributePath& path, bool case_sensitive, const Value& item,
               const Value& fallback) {
  Value key = path.follow(runtime, item, fallback);
  if (case_sensitive || !key.is_string()) return key;
  return string_like(runtime, key, to_lower(text_of(key)));
}

NativeTable sequence_filters() {
  return {kFilters, std::size(kFilters)};
}

}  // namespace cohort::jinja
