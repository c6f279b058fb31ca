// Messages to prompt: what transformers' apply_chat_template does around the template itself.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cohort/error.h"
#include "text/template/template.h"

namespace cohort {

/// What the template sees beside the messages. Pointers may be null; what they point to outlives the call.
struct ChatOptions {
  const nlohmann::ordered_json* tools = nullptr;      // array of function schemas; the variable is none without
  const nlohmann::ordered_json* documents = nullptr;  // array of {title, text}; none without
  bool add_generation_prompt = true;                  // end with the header of an assistant turn
  std::optional<std::string> bos_token, eos_token;    // undefined if the vocabulary has none
  const nlohmann::ordered_json* variables = nullptr;  // object of further variables, such as enable_thinking
  TemplateClock clock = system_local_time;
};

/// The prompt of a conversation, an array of {role, content, ...}. As transformers does, members of a message that are
/// null are dropped, and the names of its reasoning (reasoning_content, thinking, reasoning) are filled from each
/// other. Errors: invalid_argument (the conversation does not fit the template, with the words of its raise_exception;
/// names what is malformed), capacity (the limits of the template).
Expected<std::string> render_chat(const Template& chat_template, const nlohmann::ordered_json& messages,
                                  const ChatOptions& options);

}  // namespace cohort
