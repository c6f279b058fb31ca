// The fields of a request that shape the answer: response_format, grammar, tools.
#pragma once

#include <string_view>

#include "server/openai/fields.h"
#include "server/openai/request.h"

namespace cohort::server {

/// `body` is the text that `fields` was parsed from: schemas and tools are read from it again, because the order of
/// their properties matters.
Expected<void> parse_shape(Fields& fields, std::string_view body, GenerationRequest& request);

/// `tools` and the same with its properties in order, into the request's tools and tool_names.
Expected<void> parse_tools(const nlohmann::json& tools, const nlohmann::ordered_json& ordered,
                           GenerationRequest& request);

/// `chat_template_kwargs`: further variables of the chat template; empty when absent.
Expected<nlohmann::ordered_json> parse_template_variables(Fields& fields);

}  // namespace cohort::server
