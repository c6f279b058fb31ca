#include "server/openai/tools.h"

#include <algorithm>
#include <array>

#include "base/result.h"
#include "text/grammar/json_schema.h"

namespace cohort::server {

using grammar::Grammar;
using nlohmann::ordered_json;

namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view arguments_key(ToolFormat format) {
  return format == ToolFormat::llama ? "parameters" : "arguments";
}

/// The schema of a function's arguments, which are an object. A function without one takes none, as in OpenAI's API.
ordered_json arguments_schema(const ordered_json& function) {
  if (!function.contains("parameters") || function["parameters"].is_null())
    return {{"type", "object"}, {"properties", ordered_json::object()}};
  ordered_json schema = function["parameters"];
  const bool elsewhere = std::ranges::any_of(std::array{"$ref", "anyOf", "oneOf", "allOf"},
                                             [&](const char* keyword) { return schema.contains(keyword); });
  if (!elsewhere) schema["type"] = "object";
  return schema;
}

/// The functions that may be called: what `written` makes of the number of each, its name and its arguments.
template <class Written>
Expected<Grammar::Id> any_function(Grammar& g, const ToolGrammarRequest& request, Written written) {
  std::vector<Grammar::Id> calls;
  for (size_t i = 0; i < request.tools.size(); ++i) {
    const ordered_json& function = request.tools[i].at("function");
    COHORT_ASSIGN(const Grammar::Id body,
                  grammar::add_schema(g, arguments_schema(function), fmt::format("tools[{}].function.parameters", i)));
    const Grammar::Rule rule = g.add_rule(fmt::format("arguments {}", i));
    g.define(rule, body);
    calls.push_back(written(function.at("name").get<std::string>(), g.rule(rule)));
  }
  return g.choice(std::move(calls));
}

/// {"name": "f", "arguments": {...}} for any of the tools.
Expected<Grammar::Id> any_call(Grammar& g, const ToolGrammarRequest& request) {
  return any_function(g, request, [&](const std::string& name, Grammar::Id arguments) {
    const std::string begin =
        fmt::format("{{\"name\": {}, \"{}\": ", ordered_json(name).dump(), arguments_key(request.format));
    return g.sequence({g.literal(begin), arguments, g.literal("}")});
  });
}

std::string call_text(const ordered_json& call) {
  const ordered_json& function = call.contains("function") ? call["function"] : call;
  const ordered_json one{
      {"name", function.value("name", "")},
      {"arguments", function.contains("arguments") ? function["arguments"] : ordered_json::object()}};
  return fmt::format("<tool_call>\n{}\n</tool_call>", one.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

std::string instructions(const ordered_json& tools) {
  std::string out =
      "You may call tools. To call one, answer with a JSON object between <tool_call> and </tool_call>:\n"
      "<tool_call>\n{\"name\": \"the tool's name\", \"arguments\": {}}\n</tool_call>\n"
      "The tools, each with the JSON Schema of its arguments:\n";
  for (const ordered_json& tool : tools)
    out.append(tool.at("function").dump(-1, ' ', false, ordered_json::error_handler_t::replace)).append("\n");
  return out;
}

}  // namespace

Grammar::Id tool_marker(Grammar& g, std::string_view text, const grammar::FindToken& find_special) {
  const auto token = find_special ? find_special(text) : std::nullopt;
  return token ? g.token(*token) : g.literal(std::string(text));
}

TemplateTools tools_of_template(std::string_view source) {
  if (!has(source, "tools")) return {ToolFormat::hermes, false};
  if (speaks_harmony(source)) return {ToolFormat::harmony, true};
  if (has(source, "<|tool_call>call:")) return {ToolFormat::gemma, true};
  if (has(source, "[TOOL_CALLS]") && !has(source, "[ARGS]")) return {ToolFormat::mistral, true};
  if (has(source, "<tool_call>") && !has(source, "<function=") && !has(source, "<arg_key>"))
    return {ToolFormat::hermes, true};
  if (has(source, "<|start_header_id|>") && has(source, "\"parameters\"")) return {ToolFormat::llama, true};
  return {ToolFormat::hermes, false};
}

bool reasons(std::string_view source) {
  return has(source, "</think>") || thinks_in_channels(source);
}

bool thinks_in_channels(std::string_view source) {
  return has(source, "<|channel>") && has(source, "<channel|>");
}

ordered_json generic_tool_messages(const ordered_json& messages, const ordered_json& tools) {
  ordered_json out = ordered_json::array();
  if (!tools.empty()) {
    const bool has_system = !messages.empty() && messages[0].value("role", "") == "system";
    const std::string before = has_system && messages[0]["content"].is_string()
                                   ? fmt::format("{}\n\n", messages[0]["content"].get<std::string>())
                                   : "";
    out.push_back({{"role", "system"}, {"content", before + instructions(tools)}});
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    ordered_json message = messages[i];
    const std::string role = message.value("role", "");
    if (i == 0 && !tools.empty() && role == "system") continue;
    std::string text = message["content"].is_string() ? message["content"].get<std::string>() : "";
    if (role == "tool") {
      message = {{"role", "user"}, {"content", fmt::format("<tool_response>\n{}\n</tool_response>", text)}};
      if (!out.empty() && out.back()["role"] == "user" && i > 0 && messages[i - 1].value("role", "") == "tool") {
        out.back()["content"] =
            fmt::format("{}\n{}", out.back()["content"].get<std::string>(), message["content"].get<std::string>());
        continue;
      }
    } else if (message.contains("tool_calls") && message["tool_calls"].is_array()) {
      for (const ordered_json& call : message["tool_calls"])
        text += fmt::format("{}{}", text.empty() ? "" : "\n", call_text(call));
      message["content"] = text;
      message.erase("tool_calls");
    }
    out.push_back(std::move(message));
  }
  return out;
}

namespace {

/// The grammar's texts after the rest of a thought: any text without </think>, </think>, and white space.
void put_after_reasoning(Grammar& g) {
  // The automaton that looks for </think>: what has been read of it is the state.
  constexpr std::string_view kEnd = "</think>";
  std::array<Grammar::Rule, kEnd.size()> states{};
  for (size_t i = 0; i < kEnd.size(); ++i) states[i] = g.add_rule("thought");
  const Grammar::Id answer = g.rule(g.root);
  const Grammar::Id space = g.repeat(g.characters({{'\n', '\n'}}), 0, 2);
  for (size_t i = 0; i < kEnd.size(); ++i) {
    const uint32_t wanted = static_cast<unsigned char>(kEnd[i]);
    const Grammar::Id next = i + 1 < kEnd.size() ? g.rule(states[i + 1]) : g.sequence({space, answer});
    std::vector<Grammar::Id> ways{g.sequence({g.literal(std::string(1, kEnd[i])), next})};
    if (kEnd[i] != '<') ways.push_back(g.sequence({g.literal("<"), g.rule(states[1])}));
    ways.push_back(g.sequence(
        {g.characters(grammar::complement(grammar::normalised({{'<', '<'}, {wanted, wanted}}))), g.rule(states[0])}));
    g.define(states[i], g.choice(std::move(ways)));
  }
  const Grammar::Rule root = g.add_rule("root after a thought");
  g.define(root, g.rule(states[0]));
  g.root = root;
}

/// The calls of a format as an expression.
Expected<Grammar::Id> calls_of(Grammar& g, const ToolGrammarRequest& request, const grammar::FindToken& find_special) {
  if (request.format == ToolFormat::gemma) return gemma_calls(g, request, find_special);
  if (request.format == ToolFormat::harmony) {
    // A call ends the turn, so there is one.
    return any_function(g, request, [&](const std::string& name, Grammar::Id arguments) {
      return harmony_call(g, name, arguments, find_special);
    });
  }
  COHORT_ASSIGN(const Grammar::Id call, any_call(g, request));
  Grammar::Id body = call;
  if (request.format == ToolFormat::hermes) {
    const Grammar::Id one = g.sequence({tool_marker(g, "<tool_call>", find_special), g.literal("\n"), call,
                                        g.literal("\n"), tool_marker(g, "</tool_call>", find_special)});
    const Grammar::Id more = g.sequence({g.literal("\n"), one});
    body = request.several ? g.sequence({one, g.repeat(more, 0, Grammar::kUnbounded)}) : one;
  } else if (request.format == ToolFormat::mistral) {
    const Grammar::Id more = g.sequence({g.literal(", "), call});
    const Grammar::Id list = request.several ? g.sequence({call, g.repeat(more, 0, Grammar::kUnbounded)}) : call;
    body = g.sequence({tool_marker(g, "[TOOL_CALLS]", find_special), g.optional(g.literal(" ")), g.literal("["), list,
                       g.literal("]")});
  }
  return body;
}

}  // namespace

void put_at_start(Grammar& g, AnswerStart start, const grammar::FindToken& find_special) {
  if (start == AnswerStart::thought) put_after_reasoning(g);
  if (start != AnswerStart::harmony) return;
  const Grammar::Id answer = harmony_final(g, g.rule(g.root), find_special);
  const Grammar::Rule root = g.add_rule("root on a channel");
  g.define(root, g.sequence({harmony_thoughts(g, find_special), answer}));
  g.root = root;
}

Expected<Grammar> tool_grammar(const ToolGrammarRequest& request, const grammar::FindToken& find_special) {
  Grammar g;
  g.root = g.add_rule("root");
  COHORT_ASSIGN(Grammar::Id body, calls_of(g, request, find_special));
  const bool harmony = request.format == ToolFormat::harmony;
  if (request.schema || request.json_object) {
    const ordered_json schema = request.schema ? *request.schema : ordered_json::object({{"type", "object"}});
    const char* path = request.schema ? "response_format.json_schema.schema" : "response_format";
    COHORT_ASSIGN(Grammar::Id answer, grammar::add_schema(g, schema, path));
    if (harmony) answer = harmony_final(g, answer, find_special);
    body = g.choice({body, answer});
  }
  g.define(g.root, harmony ? g.sequence({harmony_thoughts(g, find_special), body}) : body);
  if (request.after_reasoning) put_after_reasoning(g);
  return g;
}

}  // namespace cohort::server
