// Functions that every template can call.
#include <ctime>
#include <iterator>

#include "text/template/callable.h"
#include "text/template/operations.h"

namespace cohort::jinja {
namespace {

constexpr Int kMaxRange = 100'000;  // the sandbox's MAX_RANGE

Value range(Runtime& runtime, const Value&, Arguments& arguments) {
  constexpr Int kBound = Int{1} << 62;
  Int bounds[3] = {0, 0, 1};
  for (size_t i = 0; i < 3 && arguments.has(i); ++i) {
    bounds[i] = integer_argument(arguments[i], "an argument of range");
    if (bounds[i] > kBound || bounds[i] < -kBound) refuse("range() reaches beyond 2^62");
  }
  if (!arguments.has(1)) std::swap(bounds[0], bounds[1]);
  if (bounds[2] == 0) refuse("range() arg 3 must not be zero");
  Value made = runtime.range(bounds[0], bounds[1], bounds[2]);
  if (made.as<RangeObject>().length > kMaxRange) {
    refuse("the range has {} items, more than the {} that the sandbox allows",
           integer_text(made.as<RangeObject>().length), integer_text(kMaxRange));
  }
  return made;
}

/// dict(*arguments, **keywords).
Ref<DictObject> make_dict(Runtime& runtime, Arguments& arguments) {
  Ref<DictObject> dict = runtime.dict();
  if (arguments.positional.size() > 1) refuse("dict expected at most 1 argument, got {}", arguments.positional.size());
  if (!arguments.positional.empty()) {
    const Value& source = arguments[0];
    if (source.is_undefined()) refuse("{}", source.as<UndefinedObject>().message);
    if (source.is(Kind::dict)) {
      for (const auto& [key, value] : source.as<DictObject>().entries) dict->set(runtime, key, value);
    } else {
      for (const Value& pair : collect(runtime, source)) {
        std::vector<Value> parts = collect(runtime, pair);
        if (parts.size() != 2) refuse("dict() needs pairs, got {} values", parts.size());
        dict->set(runtime, parts[0], parts[1]);
      }
    }
  }
  for (auto& [name, value] : arguments.keywords) dict->set(runtime, runtime.string(name), std::move(value));
  return dict;
}

Value dict(Runtime& runtime, const Value&, Arguments& arguments) {
  return runtime.dict(make_dict(runtime, arguments));
}

Value name_space(Runtime& runtime, const Value&, Arguments& arguments) {
  Ref<DictObject> attributes = make_dict(runtime, arguments);
  auto made = runtime.make<NamespaceObject>(attributes->entries.size() * 2 * sizeof(Value), 0);
  for (const auto& [key, value] : attributes->entries) {
    const std::string& name = text_argument(key, "the name of a namespace's attribute");
    if (name.substr(0, 1) == "_") refuse("the attribute '{}' of a namespace may not start with '_'", name);
    made->attributes.emplace_back(name, value);
  }
  runtime.keep(Ref<MutableObject>(made));
  return {Kind::name_space, std::move(made)};
}

Value joiner(Runtime& runtime, const Value&, Arguments& arguments) {
  Value separator = arguments.has(0) ? arguments[0] : runtime.string(", ");
  auto made = runtime.make<JoinerObject>(0, separator.depth() + 1);
  made->separator = std::move(separator);
  return {Kind::joiner, std::move(made)};
}

Value cycler(Runtime& runtime, const Value&, Arguments& arguments) {
  if (!arguments.keywords.empty()) refuse("cycler takes no named arguments");
  if (arguments.positional.empty()) refuse("at least one item has to be provided");
  uint32_t depth = 0;
  for (const Value& item : arguments.positional) depth = std::max(depth, item.depth());
  auto made = runtime.make<CyclerObject>(arguments.positional.size() * sizeof(Value), depth + 1);
  made->items = arguments.positional;
  return {Kind::cycler, std::move(made)};
}

Value cycler_next(Runtime&, const Value& self, Arguments&) {
  auto& cycler = self.as<CyclerObject>();
  size_t at = cycler.position;
  cycler.position = (at + 1) % cycler.items.size();
  return cycler.items[at];
}

Value cycler_reset(Runtime&, const Value& self, Arguments&) {
  self.as<CyclerObject>().position = 0;
  return Value::none();
}

Value raise_exception(Runtime& runtime, const Value&, Arguments& arguments) {
  refuse("{}", text_of(to_string(runtime, arguments[0])));
}

/// One directive of strftime, such as %d or %-d.
std::string formatted(const std::tm& time, std::string_view directive) {
  char letter = directive.back();
  if (letter == 'f') return "000000";             // microseconds, which the clock does not tell
  if (letter == 'z' || letter == 'Z') return "";  // Python's naive times have no zone
  char buffer[256];
  size_t size = std::strftime(buffer, sizeof buffer, std::string(directive).c_str(), &time);
  return {buffer, size};
}

Value strftime_now(Runtime& runtime, const Value&, Arguments& arguments) {
  const std::string& format = text_argument(arguments[0], "the format of strftime_now");
  runtime.spend_bytes(format.size() * 16);
  std::tm time = runtime.now();
  Text out(runtime);
  for (size_t i = 0; i < format.size();) {
    size_t end = i + 1;
    if (format[i] == '%') {
      while (end < format.size() && std::string_view("-_0^#").find(format[end]) != std::string_view::npos) ++end;
      size_t width = end;
      while (end < format.size() && format[end] >= '0' && format[end] <= '9') ++end;
      if (end - width > 2) refuse("the width of '%{}' in strftime_now is too large", format.substr(width, end - width));
      if (end < format.size() && (format[end] == 'E' || format[end] == 'O')) ++end;
      bool known = end < format.size() && std::isalpha(static_cast<unsigned char>(format[end])) != 0;
      if (known || (end < format.size() && format[end] == '%')) {
        out.append(formatted(time, std::string_view(format).substr(i, end + 1 - i)));
        i = end + 1;
        continue;
      }
    }
    out.append(std::string_view(format).substr(i, end - i));
    i = end;
  }
  return runtime.string(out.take());
}

constexpr Native kGlobals[] = {
    {"range", "/start stop= step=", range},
    {"dict", "*", dict},
    {"namespace", "*", name_space},
    {"joiner", "sep=", joiner},
    {"cycler", "*", cycler},
    {"raise_exception", "message", raise_exception},
    {"strftime_now", "format", strftime_now},
};

constexpr Native kCyclerMethods[] = {{"next", "", cycler_next}, {"reset", "", cycler_reset}};

}  // namespace

const Native* find_global(std::string_view name) {
  return NativeTable{kGlobals, std::size(kGlobals)}.find(name);
}
NativeTable cycler_methods() {
  return {kCyclerMethods, std::size(kCyclerMethods)};
}

}  // namespace cohort::jinja
