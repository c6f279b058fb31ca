#include "text/template/loop.h"

#include "text/template/callable.h"
#include "text/template/operations.h"

namespace cohort::jinja {
namespace {

Value loop_cycle(Runtime&, const Value& self, Arguments& arguments) {
  const auto& items = arguments.positional;
  if (!arguments.keywords.empty()) refuse("loop.cycle takes no named arguments");
  if (items.empty()) refuse("no items for cycling given");
  auto index = static_cast<size_t>(self.as<LoopObject>().index0);
  return items[index % items.size()];
}

Value loop_changed(Runtime& runtime, const Value& self, Arguments& arguments) {
  auto& loop = self.as<LoopObject>();
  if (!arguments.keywords.empty()) refuse("loop.changed takes no named arguments");
  if (loop.ended)
    refuse("loop.changed was called after the loop");  // what it remembers is dropped at the end, see below
  bool same = loop.last_changed && loop.last_changed->size() == arguments.positional.size();
  for (size_t i = 0; same && i < arguments.positional.size(); ++i) {
    same = equal(runtime, (*loop.last_changed)[i], arguments.positional[i]);
  }
  if (!same) loop.last_changed = arguments.positional;
  return Value::boolean(!same);
}

constexpr Native kCycle{"cycle", "*", loop_cycle};
constexpr Native kChanged{"changed", "*", loop_changed};

}  // namespace

bool LoopObject::advance(Runtime& runtime, Value& item) {
  if (!after.is_missing()) {
    item = std::exchange(after, Value());
  } else if (!iterator->next(runtime, item)) {
    return false;
  }
  ++index0;
  before = std::exchange(current, item);
  return true;
}

bool LoopObject::next(Runtime& runtime, Value& value) {
  Value item;
  if (!advance(runtime, item)) return false;
  value = runtime.tuple({item, Value(Kind::loop, Ref<LoopObject>(this))});
  return true;
}

const Value& LoopObject::peek(Runtime& runtime) {
  if (after.is_missing()) {
    Value item;
    if (iterator->next(runtime, item)) after = std::move(item);
  }
  return after;
}

Int LoopObject::length(Runtime& runtime) {
  if (known_length) return *known_length;
  known_length = jinja::length(iterable);
  if (!known_length) {
    // A generator: walk what is left and go on over the copy.
    Value rest = runtime.list(collect(runtime, Value(Kind::iterator, iterator)));
    known_length = static_cast<Int>(items_of(rest).size()) + index0 + 1 + (after.is_missing() ? 0 : 1);
    iterator = iterate(runtime, rest);
  }
  return *known_length;
}

Value LoopObject::attribute(Runtime& runtime, std::string_view name) {
  auto method = [&](const Native& native) {
    auto function = runtime.make<FunctionObject>(0, depth + 1);
    function->native = &native;
    function->self = Value(Kind::loop, Ref<LoopObject>(this));
    return Value(Kind::function, std::move(function));
  };
  if (name == "index") return Value::integer(index0 + 1);
  if (name == "index0") return Value::integer(index0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(peek(runtime).is_missing());
  if (name == "length") return Value::integer(length(runtime));
  if (name == "revindex") return Value::integer(length(runtime) - index0);
  if (name == "revindex0") return Value::integer(length(runtime) - index0 - 1);
  if (name == "previtem") return index0 == 0 ? runtime.undefined("there is no previous item") : before;
  if (name == "nextitem") {
    const Value& item = peek(runtime);
    return item.is_missing() ? runtime.undefined("there is no next item") : item;
  }
  if (name == "depth") return Value::integer(depth0 + 1);
  if (name == "depth0") return Value::integer(depth0);
  if (name == "cycle") return method(kCycle);
  if (name == "changed") return method(kChanged);
  return Value();
}

}  // namespace cohort::jinja
