// From a request to sequences: its prompts as tokens, how many new ones they may get, what they must be.
#include <fmt/format.h>

#include <array>

#include "base/counted.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/answer_room.h"
#include "models/model.h"
#include "server/diffusion.h"
#include "server/generation.h"
#include "server/openai/fields.h"
#include "text/template/chat.h"

namespace cohort::server {
namespace {

constexpr int32_t kDefaultCompletionTokens = 16;  // OpenAI's

/// More sequences than the server ever holds will not fit later either.
Expected<void> check_sequences(const GenerationRequest& request, const EngineLoop& loop) {
  const size_t prompts = request.api == Api::chat ? 1 : request.prompts.size();
  const size_t wanted = prompts * static_cast<size_t>(request.choices);
  if (wanted <= loop.limit()) return {};
  const auto streams = static_cast<size_t>(loop.view().capacity.max_streams);
  return fail(
      ErrorCode::invalid_argument,
      "'{}' asks for {} answers in one request; this server holds {}, {} that run and {} that wait: ask for fewer, "
      "or start it with a larger --queue",
      request.choices > 1 ? "n" : "prompt", wanted, loop.limit(), streams, loop.limit() - streams);
}

/// New tokens that a prompt may get: what was asked for, or what the context and the KV pages hold. Never less than was
/// asked for: that is an error with the numbers.
Expected<int32_t> tokens_for(const GenerationRequest& request, int64_t prompt, const Engine& engine) {
  const int64_t context = engine.model().context();
  const int64_t canvas = engine.diffusion().canvas_length;
  const int64_t least = std::max<int64_t>(canvas, 1);
  if (prompt > context - least) {
    return fail(ErrorCode::capacity,
                "'{}' has {}; the context of {} positions leaves room for at most {}{}: shorten it; the server's "
                "operator: {}",
                prompt_field(request.api), counted(prompt, "token"), context, std::max<int64_t>(context - least, 0),
                canvas > 0 ? fmt::format(" beside a canvas of {}", canvas) : "", engine.model().longer_context());
  }
  const int64_t room = answer_room(engine.diffusion(), std::min(context, engine.kv_positions()) - prompt);
  const int64_t most = answer_room(engine.diffusion(), context - prompt);
  if (request.max_tokens) {
    if (*request.max_tokens > most) {
      return fail(ErrorCode::capacity,
                  "'max_tokens' of {} and {} are {} positions{}; the context has {}: lower max_tokens to at most "
                  "{}; the server's operator: {}",
                  *request.max_tokens, counted(prompt, "prompt token"),
                  prompt + answer_positions(engine.diffusion(), *request.max_tokens), in_canvases(engine.diffusion()),
                  context, most, engine.model().longer_context());
    }
    return *request.max_tokens;
  }
  const int64_t wanted = request.api == Api::completions ? kDefaultCompletionTokens : room;
  return static_cast<int32_t>(std::max<int64_t>(std::min(wanted, most), 1));
}

}  // namespace

Expected<std::vector<int32_t>> encode_prompt(const TextModel& text, const Prompt& prompt) {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
    if (ids->empty()) return fail(ErrorCode::invalid_argument, "'prompt' has no token ids; give at least one");
    return *ids;
  }
  auto ids = text.tokenizer.encode(std::get<std::string>(prompt));
  if (!ids) return tl::unexpected<Error>(of_field("prompt", ids.error()));
  if (!ids->empty()) return ids;
  // A model that was trained on texts one after another begins a text after the token that ends one.
  const auto begin = text.tokenizer.bos_id() ? text.tokenizer.bos_id() : text.tokenizer.eos_id();
  if (!begin) return fail(ErrorCode::invalid_argument, "'prompt' is empty; give at least one character");
  return std::vector<int32_t>{*begin};
}

Expected<MarkedText> render_messages(const TextModel& text, const nlohmann::ordered_json& messages,
                                     const nlohmann::ordered_json& tools, bool add_generation_prompt,
                                     const nlohmann::ordered_json& variables) {
  if (!text.chat_template) {
    return fail(ErrorCode::invalid_argument, "'messages': this model {}; use /v1/completions",
                text.chat_template_problem.empty()
                    ? "has no chat template"
                    : "has a chat template that cannot be used (" + text.chat_template_problem + ")");
  }
  ChatOptions options;
  const auto spelling = [&](std::optional<int32_t> id) {
    return id ? std::optional(std::string(text.tokenizer.token_text(*id))) : std::nullopt;
  };
  options.add_generation_prompt = add_generation_prompt;
  options.bos_token = spelling(text.tokenizer.bos_id());
  options.eos_token = spelling(text.tokenizer.eos_id());
  options.variables = &variables;
  const bool native = tools_of_template(text.chat_template_source).native;
  const std::array<const nlohmann::ordered_json*, 2> texts{&messages, &tools};
  COHORT_ASSIGN(const ContentMarks marks, ContentMarks::create(text.tokenizer, texts));
  nlohmann::ordered_json conversation = messages, functions = tools;
  marks.put_into(functions);
  marks.put_into_messages(conversation);
  if (speaks_harmony(text.chat_template_source)) conversation = harmony_messages(conversation);
  if (native && !tools.empty()) options.tools = &functions;
  if (!native) conversation = generic_tool_messages(conversation, functions);
  const auto rendered = render_chat(*text.chat_template, conversation, options);
  if (rendered) return marks.take_out(*rendered);
  log::warning("a chat template failed: {}", rendered.error().message);
  return fail(ErrorCode::invalid_argument, "'messages' were refused by the chat template: {}",
              rendered.error().message);
}

namespace {

/// The prompt ends inside of a thought that the template has opened.
bool ends_in_thought(std::string_view prompt) {
  const size_t last = prompt.find_last_not_of(" \n");
  return last != prompt.npos && prompt.substr(0, last + 1).ends_with("<think>");
}

/// The grammar that the answer must keep to; null for none.
Expected<std::shared_ptr<const Constraint>> constraint_of(const GenerationRequest& request, const Ready& ready,
                                                          const AnswerSyntax& syntax) {
  Constraints& all = *ready.constraints;
  const AnswerStart start = syntax.harmony            ? AnswerStart::harmony
                            : syntax.begins_reasoning ? AnswerStart::thought
                                                      : AnswerStart::plain;
  const bool shaped = request.schema || request.json_object;
  const bool calls = request.tool_choice == ToolChoice::automatic && shaped;  // or an answer of the schema
  if (!request.grammar.empty()) return all.of_grammar(request.grammar);
  if (request.tool_choice != ToolChoice::required && !calls) {
    if (request.schema) return all.of_schema(*request.schema, start);
    if (request.json_object) return all.of_json_object(start);
    return std::shared_ptr<const Constraint>();
  }
  if (calls && syntax.tools == ToolFormat::llama) {
    return fail(
        ErrorCode::unsupported,
        "'response_format' and 'tools' are both given, and this model's calls are JSON objects like its answers; "
        "send one of them, or a 'tool_choice' of \"none\" or \"required\"");
  }
  ToolGrammarRequest tools;
  if (calls) {
    tools.schema = request.schema;
    tools.json_object = request.json_object;
  }
  tools.tools = nlohmann::ordered_json::array();
  for (const auto& tool : request.tools) {
    if (request.forced_tool.empty() || tool["function"]["name"] == request.forced_tool) tools.tools.push_back(tool);
  }
  tools.format = syntax.tools;
  tools.several = request.parallel_tool_calls && request.forced_tool.empty();
  tools.after_reasoning = start == AnswerStart::thought;
  return all.of_tools(tools);
}

/// The template's variables; `reasoning_effort` is one of them where the template has a use for it.
Expected<nlohmann::ordered_json> variables_of(const GenerationRequest& request, std::string_view source) {
  constexpr std::string_view kEffort = "reasoning_effort";
  nlohmann::ordered_json variables = request.template_variables;
  if (request.reasoning_effort.empty()) return variables;
  if (source.find(kEffort) == std::string_view::npos) {
    return fail(ErrorCode::unsupported, "'{}' is \"{}\"; this model's chat template knows no such thing: leave it out",
                kEffort, request.reasoning_effort);
  }
  if (const auto other = variables.find(kEffort); other != variables.end() && *other != request.reasoning_effort) {
    return fail(ErrorCode::invalid_argument, "'{0}' is \"{1}\" and 'chat_template_kwargs.{0}' is {2}; send one of them",
                kEffort, request.reasoning_effort, shown(*other));
  }
  variables[kEffort] = request.reasoning_effort;
  return variables;
}

}  // namespace

Expected<Plan> make_plan(const GenerationRequest& request, const Ready& ready, uint64_t seed) {
  COHORT_TRY(check_sequences(request, *ready.loop));
  COHORT_TRY(check_diffusion(request, ready.loop->engine()));
  Plan plan;
  std::vector<std::vector<int32_t>> prompts;
  if (request.api == Api::chat) {
    const bool tools = request.tool_choice != ToolChoice::none;
    COHORT_ASSIGN(const nlohmann::ordered_json variables, variables_of(request, ready.text.chat_template_source));
    COHORT_ASSIGN(const MarkedText rendered,
                  render_messages(ready.text, request.messages, tools ? request.tools : nlohmann::ordered_json::array(),
                                  request.add_generation_prompt, variables));
    const std::string_view source = ready.text.chat_template_source;
    plan.syntax.harmony = speaks_harmony(source);
    plan.syntax.reasoning = reasons(source);
    if (thinks_in_channels(source)) {
      plan.syntax.thought = "<|channel>thought";
      plan.syntax.thought_end = "<channel|>";
    }
    plan.syntax.begins_reasoning = plan.syntax.reasoning && ends_in_thought(rendered.text);
    if (tools) {
      plan.syntax.tools = tools_of_template(source).format;
      plan.syntax.tool_names = request.tool_names;
    }
    // The template writes the model's own first token where there is one.
    auto ids = ready.text.tokenizer.encode(rendered.text, {.add_special = false, .literal = rendered.literal});
    if (!ids) return tl::unexpected<Error>(of_field("messages", ids.error()));
    prompts.push_back(std::move(*ids));
  }
  for (const Prompt& prompt : request.prompts) {
    COHORT_ASSIGN(auto ids, encode_prompt(ready.text, prompt));
    prompts.push_back(std::move(ids));
  }
  COHORT_ASSIGN(const auto constraint, constraint_of(request, ready, plan.syntax));
  for (const std::vector<int32_t>& prompt : prompts) {
    COHORT_ASSIGN(const int32_t tokens, tokens_for(request, static_cast<int64_t>(prompt.size()), ready.loop->engine()));
    for (int32_t choice = 0; choice < request.choices; ++choice) {
      SequenceRequest& s = plan.sequences.emplace_back();
      s.prompt = prompt;
      s.sampling = request.sampling;
      if (!request.has_seed) s.sampling.seed = seed;
      s.sampling.stream = static_cast<uint32_t>(choice);
      s.max_tokens = tokens;
      s.priority = request.priority;
      s.constraint = constraint;
      if (!request.ignore_eos) s.end_tokens = ready.text.end_tokens();
    }
  }
  return plan;
}

}  // namespace cohort::server
