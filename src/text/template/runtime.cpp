#include "text/template/runtime.h"

#include <algorithm>

#include "text/template/unicode.h"

namespace cohort::jinja {

Value Runtime::string(std::string bytes, bool markup) {
  spend_bytes(bytes.size());
  auto object = make<StringObject>(bytes.size(), 0);
  object->length = count_code_points(bytes);
  object->bytes = std::move(bytes);
  object->markup = markup;
  return {Kind::string, std::move(object)};
}

Value Runtime::sequence(Kind kind, std::vector<Value> items) {
  uint32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  spend(1 + items.size() / 8);
  auto object = make<ListObject>(items.size() * sizeof(Value), depth + 1);
  object->items = std::move(items);
  return {kind, std::move(object)};
}

Value Runtime::undefined(std::string message) {
  auto object = make<UndefinedObject>(message.size(), 0);
  object->message = std::move(message);
  return {Kind::undefined, std::move(object)};
}

Value Runtime::range(Int start, Int stop, Int step) {
  auto object = make<RangeObject>(0, 0);
  object->start = start, object->stop = stop, object->step = step;
  if (step > 0 && start < stop) object->length = (stop - start - 1) / step + 1;
  if (step < 0 && start > stop) object->length = (start - stop - 1) / -step + 1;
  return {Kind::range, std::move(object)};
}

Value Runtime::view(ViewObject::Part part, Ref<DictObject> dict) {
  auto object = make<ViewObject>(0, dict->depth + 1);
  object->part = part;
  object->dict = std::move(dict);
  return {Kind::view, std::move(object)};
}

Ref<DictObject> Runtime::dict() {
  return make<DictObject>(0, 1);
}

Value Runtime::dict(Ref<DictObject> dict) {
  uint32_t depth = 0;
  for (const auto& [key, value] : dict->entries) depth = std::max({depth, key.depth(), value.depth()});
  if (depth + 1 > limits_.value_depth) fail_value_depth();
  dict->depth = depth + 1;
  size_t bytes = dict->entries.size() * (2 * sizeof(Value) + 2 * sizeof(uint32_t));
  spend(1 + dict->entries.size() / 8);
  borrow(bytes);
  dict->charged += bytes;
  return {Kind::dict, std::move(dict)};
}

void Runtime::fail_steps() const {
  throw Failure{
      ErrorCode::capacity,
      fmt::format("the template needs more than {} steps; raise the limit 'steps' if it is meant to run this long",
                  limits_.steps)};
}

void Runtime::fail_memory(size_t bytes) const {
  throw Failure{ErrorCode::capacity,
                fmt::format("the template needs {} bytes more than the {} it holds, and the limit 'memory_bytes' is {}",
                            bytes, meter_.used, limits_.memory_bytes)};
}

void Runtime::fail_value_depth() const {
  throw Failure{ErrorCode::capacity,
                fmt::format("a value nests deeper than the limit 'value_depth' of {}", limits_.value_depth)};
}

void Runtime::fail_depth() {
  --depth_;  // the guard that called does not exist yet
  throw Failure{
      ErrorCode::capacity,
      fmt::format("evaluations nest deeper than the limit 'depth' of {}; does a macro call itself without end?",
                  limits_.depth)};
}

void Text::fail_limit() const {
  throw Failure{ErrorCode::capacity,
                fmt::format("the rendered text is longer than the limit 'output_bytes' of {}", limit_)};
}

}  // namespace cohort::jinja
