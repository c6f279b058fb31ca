#include "server/openai/request_extras.h"

#include <algorithm>

#include "base/ordered_json.h"
#include "base/result.h"

namespace cohort::server {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr size_t kMaxTools = 256, kMaxNameBytes = 64;

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

/// What "#/$defs/x" refers to; null when there is no such thing.
const json* referred(const json& reference, const json& root) {
  if (!reference.is_string()) return nullptr;
  const auto& text = reference.get_ref<const std::string&>();
  if (!text.starts_with('#')) return nullptr;
  try {
    const json::json_pointer pointer(text.substr(1));
    return root.contains(pointer) ? &root.at(pointer) : nullptr;
  } catch (const json::exception&) {  // no pointer
    return nullptr;
  }
}

/// Whether what a schema allows can only be objects. One without a word about it does at the top, where the grammar of
/// calls adds the type.
bool describes_object(const json& schema, const json& root, int depth) {
  constexpr int kDeepest = 16;
  if (!schema.is_object() || depth > kDeepest) return false;
  const auto all = [&](const json& branches) {
    return branches.is_array() &&
           std::ranges::all_of(branches, [&](const json& one) { return describes_object(one, root, depth + 1); });
  };
  if (const auto type = schema.find("type"); type != schema.end())
    return *type == "object" || *type == json::array({"object"});
  if (const auto reference = schema.find("$ref"); reference != schema.end()) {
    const json* target = referred(*reference, root);
    return target != nullptr && describes_object(*target, root, depth + 1);
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (schema.contains(keyword)) return all(schema[keyword]);
  }
  if (const auto parts = schema.find("allOf"); parts != schema.end()) {
    return parts->is_array() &&
           std::ranges::any_of(*parts, [&](const json& one) { return describes_object(one, root, depth + 1); });
  }
  return depth == 0 || schema.contains("properties") || schema.contains("required") ||
         schema.contains("additionalProperties");
}

/// {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema": {...}}}
Expected<void> parse_response_format(const json& format, const ordered_json& ordered, GenerationRequest& request) {
  if (!format.is_object())
    return fail(ErrorCode::invalid_argument, "'response_format' is {}; expected an object", shown(format));
  Fields fields(format, "response_format.");
  std::string type;
  COHORT_TRY(fields.string("type", type));
  if (type == "json_object") {
    request.json_object = true;
  } else if (type == "json_schema") {
    const json* inner = fields.take("json_schema");
    if (inner == nullptr || !inner->is_object())
      return fail(ErrorCode::invalid_argument, "'response_format.json_schema' is missing or no object");
    Fields schema_fields(*inner, "response_format.json_schema.");
    std::string ignored;
    bool strict = true;
    COHORT_TRY(schema_fields.string("name", ignored));
    COHORT_TRY(schema_fields.string("description", ignored));
    COHORT_TRY(schema_fields.boolean("strict", strict));  // schemas are always kept to
    if (schema_fields.take("schema") == nullptr)
      return fail(ErrorCode::invalid_argument, "'response_format.json_schema.schema' is missing; give a JSON Schema");
    COHORT_TRY(schema_fields.finish());
    request.schema = ordered.at("json_schema").at("schema");
  } else if (type != "text") {
    return fail(ErrorCode::invalid_argument,
                "'response_format.type' is {}; expected \"text\", \"json_object\" or \"json_schema\"",
                shown(json(type)));
  }
  return fields.finish();
}

Expected<void> parse_tool_choice(const json& choice, GenerationRequest& request) {
  if (choice == "none") {
    request.tool_choice = ToolChoice::none;
  } else if (choice == "auto") {
    request.tool_choice = ToolChoice::automatic;
  } else if (choice == "required") {
    request.tool_choice = ToolChoice::required;
  } else if (choice.is_object()) {
    Fields fields(choice, "tool_choice.");
    std::string type;
    COHORT_TRY(fields.string("type", type));
    if (type != "function")
      return fail(ErrorCode::invalid_argument, "'tool_choice.type' is {}; only \"function\" is supported",
                  shown(json(type)));
    const json* function = fields.take("function");
    COHORT_TRY(fields.finish());
    if (function == nullptr || !function->is_object()) {
      return fail(ErrorCode::invalid_argument,
                  "'tool_choice' must be {{\"type\": \"function\", \"function\": {{\"name\": ...}}}}");
    }
    Fields inner(*function, "tool_choice.function.");
    COHORT_TRY(inner.string("name", request.forced_tool));
    COHORT_TRY(inner.finish());
    if (std::ranges::find(request.tool_names, request.forced_tool) == request.tool_names.end())
      return fail(ErrorCode::invalid_argument, "'tool_choice.function.name' is {}, which 'tools' does not have",
                  shown(json(request.forced_tool)));
    request.tool_choice = ToolChoice::required;
  } else {
    return fail(ErrorCode::invalid_argument,
                "'tool_choice' is {}; expected \"none\", \"auto\", \"required\" or an object that names a function",
                shown(choice));
  }
  if (request.tool_choice != ToolChoice::none && request.tool_names.empty())
    return fail(ErrorCode::invalid_argument, "'tool_choice' is given but there are no 'tools'");
  return {};
}

}  // namespace

Expected<void> parse_tools(const json& tools, const ordered_json& ordered, GenerationRequest& request) {
  if (!tools.is_array() || tools.size() > kMaxTools) {
    return fail(ErrorCode::invalid_argument, "'tools' is {}; expected an array of at most {} tools", shown(tools),
                kMaxTools);
  }
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    if (!tools[i].is_object())
      return fail(ErrorCode::invalid_argument, "'{}' is {}; expected an object", path, shown(tools[i]));
    Fields fields(tools[i], path + ".");
    std::string type;
    COHORT_TRY(fields.string("type", type));
    if (type != "function")
      return fail(ErrorCode::unsupported, "'{}.type' is {}; only \"function\" is supported", path, shown(json(type)));
    const json* function = fields.take("function");
    if (function == nullptr || !function->is_object())
      return fail(ErrorCode::invalid_argument, "'{}.function' is missing or no object", path);
    COHORT_TRY(fields.finish());
    Fields inner(*function, path + ".function.");
    std::string name, description;
    bool strict = false;
    COHORT_TRY(inner.string("name", name));
    COHORT_TRY(inner.string("description", description));
    COHORT_TRY(inner.boolean("strict", strict));
    const json* parameters = inner.take("parameters");
    COHORT_TRY(inner.finish());
    if (!is_tool_name(name)) {
      return fail(ErrorCode::invalid_argument,
                  "'{}.function.name' is {}; expected 1 to {} letters, digits, '_', '-' or '.'", path,
                  shown(json(name)), kMaxNameBytes);
    }
    if (parameters != nullptr && !parameters->is_object())
      return fail(ErrorCode::invalid_argument, "'{}.function.parameters' is {}; expected a JSON Schema", path,
                  shown(*parameters));
    if (parameters != nullptr && !describes_object(*parameters, *parameters, 0)) {
      return fail(ErrorCode::invalid_argument,
                  "'{}.function.parameters' of the tool '{}' describes what is no object; a call's arguments are one: "
                  "give \"type\": \"object\"",
                  path, name);
    }
    if (std::ranges::find(request.tool_names, name) != request.tool_names.end())
      return fail(ErrorCode::invalid_argument, "'{}.function.name' is '{}', which another tool has", path, name);
    request.tool_names.push_back(std::move(name));
  }
  request.tools = ordered;
  return {};
}

Expected<void> parse_shape(Fields& fields, std::string_view body, GenerationRequest& request) {
  const json* format = fields.take("response_format");
  const json* tools = request.api == Api::chat ? fields.take("tools") : nullptr;
  ordered_json ordered;
  if (format != nullptr || tools != nullptr) {
    COHORT_ASSIGN(ordered, parse_ordered_json(body, "the body"));
  }
  if (format != nullptr) COHORT_TRY(parse_response_format(*format, ordered.at("response_format"), request));
  COHORT_TRY(fields.string("grammar", request.grammar));
  if (request.grammar.empty() && fields.take("grammar") != nullptr)
    return fail(ErrorCode::invalid_argument, "'grammar' is empty; give a grammar, or leave it out");
  if (request.api == Api::completions) {
    COHORT_TRY(fields.unsupported("tools", json::array()));
    COHORT_TRY(fields.unsupported("tool_choice", "none"));
    COHORT_TRY(fields.unsupported("parallel_tool_calls", true));
  } else {
    if (tools != nullptr) COHORT_TRY(parse_tools(*tools, ordered.at("tools"), request));
    request.tool_choice = request.tool_names.empty() ? ToolChoice::none : ToolChoice::automatic;
    if (const json* choice = fields.take("tool_choice")) COHORT_TRY(parse_tool_choice(*choice, request));
    COHORT_TRY(fields.boolean("parallel_tool_calls", request.parallel_tool_calls));
  }
  const bool shaped = request.json_object || request.schema;
  if (shaped && !request.grammar.empty())
    return fail(ErrorCode::invalid_argument, "'grammar' and 'response_format' are both given; send one of them");
  if (!request.grammar.empty() && request.tool_choice != ToolChoice::none) {
    return fail(ErrorCode::invalid_argument,
                "'grammar' and 'tools' are both given; send one of them, or 'tool_choice': \"none\"");
  }
  return {};
}

}  // namespace cohort::server
