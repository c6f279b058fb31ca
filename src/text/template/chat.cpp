#include "text/template/chat.h"

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace cohort {
namespace {

using Json = nlohmann::ordered_json;

/// A message as templates expect it: without nulls, its reasoning under every name that they read.
Json normalized(const Json& message) {
  Json present = Json::object();
  const Json* reasoning = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    auto found = message.find(name);
    if (reasoning == nullptr && found != message.end() && !found->is_null()) reasoning = &*found;
  }
  if (reasoning != nullptr) present["thinking"] = *reasoning;
  for (const auto& [name, value] : message.items()) {
    if (!value.is_null()) present[name] = value;
  }
  if (reasoning != nullptr) present["reasoning_content"] = *reasoning;
  return present;
}

Expected<Json> normalized_messages(const Json& messages) {
  if (!messages.is_array()) {
    return fail(ErrorCode::invalid_argument, "messages must be an array of messages, not {}", messages.type_name());
  }
  if (messages.empty())
    return fail(ErrorCode::invalid_argument, "messages is empty: a conversation needs at least one message");
  Json conversation = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) {
      return fail(ErrorCode::invalid_argument, "messages[{}] must be an object, not {}", i, messages[i].type_name());
    }
    conversation.push_back(normalized(messages[i]));
  }
  return conversation;
}

/// The array of objects that `json` points to, or null.
Expected<Json> objects_or_null(const Json* json, const char* what) {
  if (json == nullptr || json->is_null()) return Json();
  if (!json->is_array())
    return fail(ErrorCode::invalid_argument, "{} must be an array, not {}", what, json->type_name());
  for (size_t i = 0; i < json->size(); ++i) {
    if (!(*json)[i].is_object()) {
      return fail(ErrorCode::invalid_argument, "{}[{}] must be an object, not {}", what, i, (*json)[i].type_name());
    }
  }
  return *json;
}

}  // namespace

Expected<std::string> render_chat(const Template& chat_template, const Json& messages, const ChatOptions& options) {
  Json context = Json::object();
  COHORT_ASSIGN(context["messages"], normalized_messages(messages));
  COHORT_ASSIGN(context["tools"], objects_or_null(options.tools, "tools"));
  COHORT_ASSIGN(context["documents"], objects_or_null(options.documents, "documents"));
  context["add_generation_prompt"] = options.add_generation_prompt;
  if (options.bos_token) context["bos_token"] = *options.bos_token;
  if (options.eos_token) context["eos_token"] = *options.eos_token;
  if (options.variables != nullptr && !options.variables->is_null()) {
    if (!options.variables->is_object()) {
      return fail(ErrorCode::invalid_argument, "the variables of a chat template must be an object, not {}",
                  options.variables->type_name());
    }
    for (const auto& [name, value] : options.variables->items()) {
      for (const char* reserved : {"messages", "tools", "documents", "add_generation_prompt"}) {
        if (name == reserved) {
          return fail(ErrorCode::invalid_argument, "the variable '{}' of a chat template has its own parameter", name);
        }
      }
      context[name] = value;
    }
  }
  return chat_template.render(context, options.clock);
}

}  // namespace cohort
