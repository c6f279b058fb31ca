// The variable `loop` of a for loop.
#pragma once

#include <optional>
#include <vector>

#include "text/template/ast.h"
#include "text/template/runtime.h"

namespace cohort::jinja {

/// The variables of one run of a function. Macros and loop filters keep the activation they were made in.
struct Activation : MutableObject {
  Ref<Activation> outer;
  std::vector<Value> slots;
  bool kept = false;  // by the runtime
  void clear() override {
    slots.clear();
    outer = {};
  }
  Value& at(const SlotRef& ref) {
    Activation* activation = this;
    for (uint32_t i = 0; i < ref.hops; ++i) activation = activation->outer.get();
    return activation->slots[ref.slot];
  }
};

struct MacroObject : Object {
  const Stmt* statement = nullptr;
  Ref<Activation> definition;
};

/// Walked by the loop itself with advance(), which also looks ahead for loop.last and loop.nextitem. Walked by a
/// template (for x in loop), it gives pairs of an item and itself, as Jinja's does.
struct LoopObject : IteratorObject {
  bool advance(Runtime& runtime, Value& item);
  bool next(Runtime& runtime, Value& value) override;
  /// The item after the current one; missing at the end.
  const Value& peek(Runtime& runtime);
  /// Number of items; walks an iterable that does not know.
  Int length(Runtime& runtime);
  Value attribute(Runtime& runtime, std::string_view name);

  Value iterable;
  Ref<IteratorObject> iterator;
  Int index0 = -1, depth0 = 0;
  std::optional<Int> known_length;
  Value before, current, after;
  std::optional<std::vector<Value>> last_changed;
  bool ended = false;
  // A recursive loop: what calling it runs.
  const Stmt* statement = nullptr;
  Ref<Activation> definition;
};

}  // namespace cohort::jinja
