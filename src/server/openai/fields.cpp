#include "server/openai/fields.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/nearest.h"
#include "base/result.h"
#include "text/tokenizer/utf8.h"

namespace cohort::server {

using nlohmann::json;

std::string shown(const json& value) {
  constexpr size_t kShown = 60;
  // Only scalars are written out: a container could be as large as the request.
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return "an object";
  if (value.is_string() && value.get_ref<const std::string&>().size() > kShown)
    return fmt::format("a string of {} bytes", value.get_ref<const std::string&>().size());
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

Expected<json> parse_body(std::string_view body) {
  constexpr std::string_view kName = "the body";
  auto root = parse_json(body, kName);
  if (!root) {
    std::string message = root.error().message;
    const std::string quoted = fmt::format("'{}'", kName);
    if (message.starts_with(quoted)) message.replace(0, quoted.size(), kName);
    return tl::unexpected<Error>({root.error().code, std::move(message)});
  }
  if (!root->is_object())
    return fail(ErrorCode::invalid_argument, "{} is {}; expected a JSON object", kName, shown(*root));
  return root;
}

Error of_field(std::string_view field, Error error) {
  if (!error.message.starts_with('\'')) error.message = fmt::format("'{}': {}", field, error.message);
  return error;
}

const json* Fields::take(std::string_view name) {
  asked_.emplace(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

Expected<void> Fields::boolean(std::string_view name, bool& out) {
  const json* value = take(name);
  if (value == nullptr) return {};
  if (!value->is_boolean())
    return fail(ErrorCode::invalid_argument, "'{}' is {}; expected true or false", full(name), shown(*value));
  out = value->get<bool>();
  return {};
}

Expected<std::optional<int64_t>> Fields::optional_integer(std::string_view name, int64_t low, int64_t high) {
  const json* value = take(name);
  if (value == nullptr) return std::optional<int64_t>();
  const auto wrong = [&] {
    return fail(ErrorCode::invalid_argument, "'{}' is {}; expected an integer from {} to {}", full(name), shown(*value),
                low, high);
  };
  int64_t number = 0;
  if (value->is_number_unsigned()) {
    const auto unsigned_number = value->get<uint64_t>();
    if (unsigned_number > static_cast<uint64_t>(INT64_MAX)) return wrong();
    number = static_cast<int64_t>(unsigned_number);
  } else if (value->is_number_integer()) {
    number = value->get<int64_t>();
  } else if (value->is_number_float()) {
    // 5.0 is what some JSON writers make of 5.
    const double real = value->get<double>();
    if (!(std::fabs(real) < 9e15) || real != std::floor(real)) return wrong();
    number = static_cast<int64_t>(real);
  } else {
    return wrong();
  }
  if (number < low || number > high) return wrong();
  return std::optional<int64_t>(number);
}

Expected<void> Fields::integer(std::string_view name, int64_t low, int64_t high, int32_t& out) {
  COHORT_ASSIGN(const std::optional<int64_t> value, optional_integer(name, low, high));
  if (value) out = static_cast<int32_t>(*value);
  return {};
}

Expected<void> Fields::number(std::string_view name, double low, double high, float& out) {
  const json* value = take(name);
  if (value == nullptr) return {};
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= low && number <= high)) {
    return fail(ErrorCode::invalid_argument, "'{}' is {}; expected a number from {} to {}", full(name), shown(*value),
                low, high);
  }
  out = static_cast<float>(number);
  return {};
}

Expected<void> Fields::string(std::string_view name, std::string& out) {
  const json* value = take(name);
  if (value == nullptr) return {};
  if (!value->is_string())
    return fail(ErrorCode::invalid_argument, "'{}' is {}; expected a string", full(name), shown(*value));
  out = value->get<std::string>();
  return {};
}

Expected<void> Fields::unsupported(std::string_view name, const json& neutral) {
  const json* value = take(name);
  if (value == nullptr || *value == neutral) return {};
  if (neutral.is_null())
    return fail(ErrorCode::unsupported, "'{}' is not supported by this server; leave it out", full(name));
  return fail(ErrorCode::unsupported, "'{}' is not supported by this server; leave it out, or send {}", full(name),
              neutral.dump());
}

namespace {

/// Which of `known` was meant by `name`; empty when none is near.
std::string_view meant(std::string_view name, const std::set<std::string, std::less<>>& known) {
  // What other servers call it.
  for (const auto& [other, own] : {std::pair{"n_predict", "max_tokens"}, std::pair{"guided_json", "response_format"}}) {
    if (const auto found = known.find(own); name == other && found != known.end()) return *found;
  }
  return nearest(name, {known.begin(), known.end()});
}

}  // namespace

Expected<void> Fields::finish() const {
  for (const auto& [name, value] : object_.items()) {
    if (asked_.contains(name)) continue;
    constexpr size_t kShown = 100;
    const std::string_view near = meant(name, asked_);
    return fail(ErrorCode::invalid_argument, "'{}{}' is an unknown field; {}", path_,
                text::repair_utf8(name.substr(0, kShown)),
                near.empty() ? "remove it" : fmt::format("did you mean '{}{}'?", path_, near));
  }
  return {};
}

}  // namespace cohort::server
