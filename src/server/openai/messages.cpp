// The messages of a chat request.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/ordered_json.h"
#include "base/result.h"
#include "server/openai/fields.h"
#include "server/openai/request.h"

namespace cohort::server {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

/// What templates commonly know.
constexpr std::array<std::string_view, 5> kRoles{"system", "developer", "user", "assistant", "tool"};

/// A text, or parts that are texts: those are joined.
Expected<ordered_json> parse_content(const json& content, const std::string& path) {
  if (content.is_string() || content.is_null()) return ordered_json(content);
  if (!content.is_array()) {
    return fail(ErrorCode::invalid_argument, "'{}' is {}; expected a string or an array of text parts", path,
                shown(content));
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const json& part = content[i];
    const std::string name = fmt::format("{}[{}]", path, i);
    if (!part.is_object())
      return fail(ErrorCode::invalid_argument, "'{}' is {}; expected an object", name, shown(part));
    Fields fields(part, name + ".");
    std::string type;
    COHORT_TRY(fields.string("type", type));
    if (type != "text") {
      return fail(ErrorCode::unsupported, "'{}.type' is {}; this server reads only \"text\"", name, shown(json(type)));
    }
    std::string piece;
    COHORT_TRY(fields.string("text", piece));
    COHORT_TRY(fields.finish());
    text += piece;
  }
  return ordered_json(std::move(text));
}

/// An object, or the text of one; templates write objects. An empty text, which some servers give for a call without
/// arguments, is an empty object.
Expected<ordered_json> parse_arguments(const json* arguments, const std::string& path) {
  if (arguments != nullptr && arguments->is_object()) return ordered_json(*arguments);
  if (arguments == nullptr || !arguments->is_string())
    return fail(ErrorCode::invalid_argument, "'{}' is {}; expected a JSON object as a string", path,
                arguments == nullptr ? "missing" : shown(*arguments));
  const auto& text = arguments->get_ref<const std::string&>();
  if (text.empty()) return ordered_json::object();
  auto parsed = parse_ordered_json(text, path);
  if (!parsed || !parsed->is_object())
    return fail(ErrorCode::invalid_argument, "'{}' is {}, which is no JSON object", path, shown(*arguments));
  return parsed;
}

/// Calls of an earlier answer; their ids are added to `ids`.
Expected<ordered_json> parse_calls(const json& calls, const std::string& path, std::set<std::string>& ids) {
  if (!calls.is_array()) return fail(ErrorCode::invalid_argument, "'{}' is {}; expected an array", path, shown(calls));
  ordered_json out = ordered_json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", path, i);
    if (!calls[i].is_object())
      return fail(ErrorCode::invalid_argument, "'{}' is {}; expected an object", name, shown(calls[i]));
    Fields fields(calls[i], name + ".");
    std::string id, type = "function", function_name;
    COHORT_TRY(fields.string("id", id));
    COHORT_TRY(fields.string("type", type));
    if (type != "function")
      return fail(ErrorCode::unsupported, "'{}.type' is {}; only \"function\" is supported", name, shown(json(type)));
    COHORT_ASSIGN(const auto index, fields.optional_integer("index", 0, INT32_MAX));  // of streamed calls; their order
    (void)index;
    const json* function = fields.take("function");
    COHORT_TRY(fields.finish());
    if (function == nullptr || !function->is_object())
      return fail(ErrorCode::invalid_argument, "'{}.function' is missing or no object", name);
    Fields inner(*function, name + ".function.");
    COHORT_TRY(inner.string("name", function_name));
    if (function_name.empty())
      return fail(ErrorCode::invalid_argument, "'{}.function.name' is missing; expected the name of a function", name);
    COHORT_ASSIGN(ordered_json arguments, parse_arguments(inner.take("arguments"), name + ".function.arguments"));
    COHORT_TRY(inner.finish());
    ordered_json one = ordered_json::object();
    if (!id.empty()) one["id"] = id;
    one["type"] = "function";
    one["function"] = {{"name", std::move(function_name)}, {"arguments", std::move(arguments)}};
    out.push_back(std::move(one));
    if (!id.empty()) ids.insert(std::move(id));
  }
  return out;
}

/// Who called a tool and what it gave belong together.
Expected<void> check_tool_fields(const ordered_json& message, const std::string& name,
                                 const std::set<std::string>& ids) {
  const std::string role = message["role"];
  if (role != "assistant" && message.contains("tool_calls"))
    return fail(ErrorCode::invalid_argument, "'{}.tool_calls' is given in a message of '{}'; only the assistant calls",
                name, role);
  const auto id = message.find("tool_call_id");
  if (role != "tool") {
    if (id == message.end()) return {};
    return fail(ErrorCode::invalid_argument,
                "'{}.tool_call_id' is given in a message of '{}'; only those of 'tool' have one", name, role);
  }
  if (id == message.end())
    return fail(ErrorCode::invalid_argument, "'{}.tool_call_id' is missing; give the id of the call that this answers",
                name);
  if (!ids.contains(id->get_ref<const std::string&>()))
    return fail(ErrorCode::invalid_argument, "'{}.tool_call_id' is {}; no call in the messages before it has this id",
                name, shown(json(*id)));
  return {};
}

}  // namespace

Expected<ordered_json> parse_messages(const json& messages, std::string_view path) {
  if (!messages.is_array() || messages.empty()) {
    return fail(ErrorCode::invalid_argument, "'{}' is {}; expected a non-empty array of messages", path,
                shown(messages));
  }
  ordered_json out = ordered_json::array();
  std::set<std::string> ids;  // of the calls so far
  for (size_t i = 0; i < messages.size(); ++i) {
    const json& message = messages[i];
    const std::string name = fmt::format("{}[{}]", path, i);
    if (!message.is_object())
      return fail(ErrorCode::invalid_argument, "'{}' is {}; expected an object", name, shown(message));
    Fields fields(message, name + ".");
    std::string role;
    COHORT_TRY(fields.string("role", role));
    if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
      return fail(ErrorCode::invalid_argument, "'{}.role' is {}; expected one of {}", name,
                  role.empty() ? "missing" : shown(json(role)), fmt::join(kRoles, ", "));
    }
    ordered_json one{{"role", role}};
    const json* content = fields.take("content");
    COHORT_ASSIGN(one["content"], parse_content(content == nullptr ? json() : *content, name + ".content"));
    for (const char* text : {"name", "reasoning_content", "tool_call_id"}) {
      std::string value;
      COHORT_TRY(fields.string(text, value));
      if (!value.empty()) one[text] = value;
    }
    if (const json* calls = fields.take("tool_calls"); calls != nullptr && *calls != json::array()) {
      COHORT_ASSIGN(one["tool_calls"], parse_calls(*calls, name + ".tool_calls", ids));
    }
    COHORT_TRY(fields.unsupported("refusal", ""));
    COHORT_TRY(fields.unsupported("annotations", json::array()));  // what OpenAI's answers have, and ask nothing
    for (const char* absent : {"audio", "function_call"}) COHORT_TRY(fields.unsupported(absent, nullptr));
    COHORT_TRY(fields.finish());
    if (one["content"].is_null() && !one.contains("tool_calls") && !one.contains("reasoning_content")) {
      return fail(ErrorCode::invalid_argument,
                  "'{}.content' is missing; only an assistant's message with tool_calls or reasoning_content has none",
                  name);
    }
    COHORT_TRY(check_tool_fields(one, name, ids));
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace cohort::server
