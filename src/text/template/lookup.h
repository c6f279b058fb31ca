// Looking up "user.name" or "0" in the items of a sequence: the argument `attribute` of many filters.
#pragma once

#include <vector>

#include "text/template/operations.h"

namespace cohort::jinja {

/// A path of attributes; empty: the item itself.
class AttributePath {
 public:
  AttributePath() = default;
  /// From the argument: none, a text with dots, or a single key.
  AttributePath(Runtime& runtime, const Value& attribute);
  /// What the path leads to from `item`; `fallback`, if given, stands for undefined values on the way.
  Value follow(Runtime& runtime, Value item, const Value& fallback = Value()) const;

 private:
  std::vector<Value> keys_;
};

/// The key that items are sorted or compared by: the attribute, in lower case unless `case_sensitive`.
Value sort_key(Runtime& runtime, const AttributePath& path, bool case_sensitive, const Value& item,
               const Value& fallback = Value());

}  // namespace cohort::jinja
