// Filters that apply a filter or a test, given by name, to each item: map, select, reject, selectattr, rejectattr. They
// are generators: nothing happens, and nothing fails, until their items are asked for.
#include <algorithm>
#include <iterator>

#include "text/template/callable.h"
#include "text/template/lookup.h"
#include "text/template/operations.h"

namespace cohort::jinja {
namespace {

const Native& named(const Native* (*find)(std::string_view), std::string_view kind, const Value& name) {
  if (name.is_undefined()) refuse("no {} given: {}", kind, name.as<UndefinedObject>().message);
  const Native* native = name.is_string() ? find(text_of(name)) : nullptr;
  if (native == nullptr)
    refuse("no {} named '{}'", kind, name.is_string() ? text_of(name) : std::string(type_name(name)));
  return *native;
}

Arguments from(const Arguments& arguments, size_t first) {
  Arguments rest;
  auto begin = arguments.positional.begin() + static_cast<std::ptrdiff_t>(std::min(first, arguments.positional.size()));
  rest.positional.assign(begin, arguments.positional.end());
  rest.keywords = arguments.keywords;
  return rest;
}

/// How deep a generator that keeps these nests.
uint32_t depth_of(const Value& self, const Arguments& arguments) {
  uint32_t depth = self.depth();
  for (const Value& value : arguments.positional) depth = std::max(depth, value.depth());
  for (const auto& keyword : arguments.keywords) depth = std::max(depth, keyword.second.depth());
  return depth;
}

Value map_attribute(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return runtime.iterator(depth_of(self, arguments),
                          [self, arguments, path = AttributePath(), fallback = Value(), source = Ref<IteratorObject>()](
                              Runtime& rt, Value& value) mutable {
                            if (!source) {
                              if (!truthy(self)) return false;
                              for (const auto& keyword : arguments.keywords) {
                                if (keyword.first != "attribute" && keyword.first != "default") {
                                  refuse("Unexpected keyword argument '{}'", keyword.first);
                                }
                              }
                              path = AttributePath(rt, *arguments.keyword("attribute"));
                              const Value* given = arguments.keyword("default");
                              if (given != nullptr && !given->is_none()) fallback = *given;
                              source = iterate(rt, self);
                            }
                            Value item;
                            if (!source->next(rt, item)) return false;
                            value = path.follow(rt, item, fallback);
                            return true;
                          });
}

Value map(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (arguments.positional.empty() && arguments.keyword("attribute") != nullptr) {
    return map_attribute(runtime, self, arguments);
  }
  return runtime.iterator(depth_of(self, arguments),
                          [self, arguments, source = Ref<IteratorObject>()](Runtime& rt, Value& value) mutable {
                            if (!source) {
                              if (!truthy(self)) return false;
                              if (arguments.positional.empty()) refuse("map requires a filter argument");
                              source = iterate(rt, self);
                            }
                            Value item;
                            if (!source->next(rt, item)) return false;
                            Arguments rest = from(arguments, 1);
                            value = invoke(rt, named(find_filter, "filter", arguments[0]), item, rest);
                            return true;
                          });
}

/// Items whose attribute (or which themselves) pass the test, or do not.
template <bool select, bool of_attribute>
Value selection(Runtime& runtime, const Value& self, Arguments& arguments) {
  constexpr size_t kTest = of_attribute ? 1 : 0;
  return runtime.iterator(
      depth_of(self, arguments),
      [self, arguments, path = AttributePath(), source = Ref<IteratorObject>()](Runtime& rt, Value& value) mutable {
        if (!source) {
          if (!truthy(self)) return false;
          if (of_attribute && arguments.positional.empty()) refuse("Missing parameter for attribute name");
          if (of_attribute) path = AttributePath(rt, arguments[0]);
          source = iterate(rt, self);
        }
        for (Value item; source->next(rt, item);) {
          Value tested = path.follow(rt, item);
          if (arguments.positional.size() > kTest) {
            Arguments rest = from(arguments, kTest + 1);
            tested = invoke(rt, named(find_test, "test", arguments[kTest]), tested, rest);
          }
          if (truthy(tested) != select) continue;
          value = std::move(item);
          return true;
        }
        return false;
      });
}

constexpr Native kFilters[] = {
    {"map", "*", map},
    {"select", "*", selection<true, false>},
    {"reject", "*", selection<false, false>},
    {"selectattr", "*", selection<true, true>},
    {"rejectattr", "*", selection<false, true>},
};

}  // namespace

NativeTable selection_filters() {
  return {kFilters, std::size(kFilters)};
}

}  // namespace cohort::jinja
