#include "server/generation.h"

#include <array>
#include <chrono>
#include <random>

#include "base/counted.h"
#include "base/log.h"
#include "base/result.h"
#include "models/model.h"
#include "server/openai/fields.h"
#include "text/template/chat.h"

namespace cohort::server {
namespace {

constexpr int32_t kDefaultCompletionTokens = 16;  // OpenAI's

uint64_t random_number() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return generator();
}

/// Nine letters and digits, which every template takes.
std::string call_id() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  constexpr int kSize = 9;
  std::string id;
  for (int i = 0; i < kSize; ++i) id += kLetters[random_number() % kLetters.size()];
  return id;
}

/// Markers of thoughts and calls that are special tokens: they are not part of the text unless asked for.
std::vector<int32_t> special_markers(const text::Tokenizer& tokenizer) {
  std::vector<int32_t> out;
  for (const char* marker : {"<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>",
                             "<|tool_call>", "<tool_call|>", "<|\"|>", "<|channel>", "<channel|>"}) {
    const auto id = tokenizer.token_id(marker);
    if (id && tokenizer.is_special(*id)) out.push_back(*id);
  }
  return out;
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The field that a request's prompts come from.
std::string_view prompt_field(const GenerationRequest& request) {
  return request.api == Api::chat ? "messages" : "prompt";
}

/// The engine's words about a sequence, with the field of the request that they are about.
Error of_request(const GenerationRequest& request, Error error) {
  constexpr std::string_view kPrompt = "the prompt", kBias = "logit_bias";
  if (error.code != ErrorCode::invalid_argument && error.code != ErrorCode::capacity) return error;
  std::string& message = error.message;
  if (message.starts_with("the queue")) return error;
  if (message.starts_with(kPrompt)) {
    message.replace(0, kPrompt.size(), fmt::format("'{}'", prompt_field(request)));
  } else if (message.starts_with(kBias)) {
    message.replace(0, kBias.size(), fmt::format("'{}'", kBias));
  }
  return of_field(request.max_tokens ? "max_tokens" : prompt_field(request), std::move(error));
}

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
  if (prompt >= context) {
    return fail(ErrorCode::capacity,
                "'{}' has {}; the context of {} positions leaves room for at most {}: shorten it, or start the server "
                "with a larger -c",
                prompt_field(request), counted(prompt, "token"), context, context - 1);
  }
  const int64_t room = std::min(context, engine.kv_positions()) - prompt;
  if (request.max_tokens) {
    if (*request.max_tokens > context - prompt) {
      return fail(ErrorCode::capacity,
                  "'max_tokens' of {} and {} are {} positions; the context has {}: lower max_tokens to at most "
                  "{}, or start the server with a larger -c",
                  *request.max_tokens, counted(prompt, "prompt token"), prompt + *request.max_tokens, context,
                  context - prompt);
    }
    return *request.max_tokens;
  }
  const int64_t wanted = request.api == Api::completions ? kDefaultCompletionTokens : room;
  return static_cast<int32_t>(std::max<int64_t>(std::min(wanted, context - prompt), 1));
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
  const bool thought = syntax.begins_reasoning;
  if (!request.grammar.empty()) return all.of_grammar(request.grammar);
  if (request.schema) return all.of_schema(*request.schema, thought);
  if (request.json_object) return all.of_json_object(thought);
  if (request.tool_choice != ToolChoice::required) return std::shared_ptr<const Constraint>();
  ToolGrammarRequest tools;
  tools.tools = nlohmann::ordered_json::array();
  for (const auto& tool : request.tools) {
    if (request.forced_tool.empty() || tool["function"]["name"] == request.forced_tool) tools.tools.push_back(tool);
  }
  tools.format = syntax.tools;
  tools.several = request.parallel_tool_calls && request.forced_tool.empty();
  tools.after_reasoning = thought;
  return all.of_tools(tools);
}

}  // namespace

Expected<Plan> make_plan(const GenerationRequest& request, const Ready& ready, uint64_t seed) {
  COHORT_TRY(check_sequences(request, *ready.loop));
  Plan plan;
  std::vector<std::vector<int32_t>> prompts;
  if (request.api == Api::chat) {
    const bool tools = request.tool_choice != ToolChoice::none;
    COHORT_ASSIGN(const MarkedText rendered,
                  render_messages(ready.text, request.messages, tools ? request.tools : nlohmann::ordered_json::array(),
                                  request.add_generation_prompt, request.template_variables));
    const std::string_view source = ready.text.chat_template_source;
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

Generation::Generation(std::shared_ptr<Exchange> exchange, std::shared_ptr<const Ready> ready,
                       GenerationRequest request)
    : exchange_(std::move(exchange)), ready_(std::move(ready)), request_(std::move(request)) {
  head_.api = request_.api;
  head_.id = fmt::format("{}-{:016x}", request_.api == Api::chat ? "chatcmpl" : "cmpl", random_number());
  head_.model = ready_->name;
  head_.created = unix_seconds();
  prepare_chunks(head_);
}

void Generation::start(const std::shared_ptr<Exchange>& exchange, std::shared_ptr<const Ready> ready,
                       GenerationRequest request) {
  auto generation = std::make_shared<Generation>(exchange, std::move(ready), std::move(request));
  if (auto submitted = generation->submit(); !submitted) {
    HttpResponse response;
    response.status = status_of(submitted.error());
    response.body = error_body(response.status, submitted.error().message);
    if (response.status == 503) response.headers.emplace_back("Retry-After", "1");
    exchange->respond(std::move(response));
  }
}

Expected<void> Generation::submit() {
  COHORT_ASSIGN(Plan plan, make_plan(request_, *ready_, random_number() >> 1));
  std::vector<SequenceRequest>& sequences = plan.sequences;
  const std::vector<int32_t> spoken =
      plan.syntax.plain() ? std::vector<int32_t>() : special_markers(ready_->text.tokenizer);
  std::vector<EventHandler> handlers;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (i % static_cast<size_t>(request_.choices) == 0)
      usage_.prompt_tokens += static_cast<int64_t>(sequences[i].prompt.size());
    Answer& answer =
        answers_.emplace_back(Answer{Choice(ready_->text.tokenizer, request_.stop, logprobs(), spoken), 0, {}, {}, {}});
    if (!plan.syntax.plain()) answer.parser.emplace(plan.syntax);
    handlers.emplace_back([self = shared_from_this(), i](std::vector<TokenEvent> events) {
      self->exchange_->dispatch([self, i, events = std::move(events)] { self->push_all(i, events); });
    });
  }
  open_ = answers_.size();
  const auto tickets = ready_->loop->submit(std::move(sequences), std::move(handlers));
  if (!tickets) return tl::unexpected<Error>(of_request(request_, tickets.error()));
  for (size_t i = 0; i < tickets->size(); ++i) answers_[i].ticket = (*tickets)[i];
  exchange_->on_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->cancel_all();
  });
  if (request_.stream) {
    exchange_->begin_stream("text/event-stream; charset=utf-8");
    if (request_.api == Api::chat) {
      for (size_t i = 0; i < answers_.size(); ++i) exchange_->write(role_chunk(head_, static_cast<int32_t>(i)));
    }
  }
  return {};
}

/// Parts of a chat answer: to the client, or to what is kept for it.
void Generation::push_parts(size_t index, std::vector<AnswerPart> parts) {
  Answer& answer = answers_[index];
  for (AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::call) answer.call_ids.push_back(call_id());
    if (request_.stream) {
      const std::string_view id = part.kind == AnswerPart::Kind::call ? answer.call_ids.back() : std::string_view();
      exchange_->write(part_chunk(head_, static_cast<int32_t>(index), part, id));
      continue;
    }
    switch (part.kind) {
      case AnswerPart::Kind::content:
        answer.finished.text += part.text;
        break;
      case AnswerPart::Kind::reasoning:
        answer.finished.reasoning += part.text;
        break;
      case AnswerPart::Kind::call:
        answer.finished.calls.push_back({answer.call_ids.back(), std::move(part.text), {}});
        break;
      case AnswerPart::Kind::arguments:
        answer.finished.calls.back().arguments += part.text;
        break;
    }
  }
}

/// What they say leaves in one piece.
void Generation::push_all(size_t index, const std::vector<TokenEvent>& events) {
  exchange_->hold();
  for (const TokenEvent& event : events) push(index, event);
  exchange_->release();
}

void Generation::push(size_t index, const TokenEvent& event) {
  if (done_) return;
  Answer& answer = answers_[index];
  if (answer.choice.ended()) return;
  Delta delta = answer.choice.push(event);
  if (delta.ended && answer.choice.finish_reason() == "error") return fail_with(answer.choice.error());
  if (answer.choice.ended_early()) ready_->loop->cancel(answer.ticket);
  std::string_view reason = answer.choice.finish_reason();
  if (answer.parser) {
    push_parts(index, answer.parser->push(delta.text));
    delta.text.clear();
    if (delta.ended) push_parts(index, answer.parser->finish());
    if (reason == "stop" && answer.parser->calls() > 0) reason = "tool_calls";
  }
  if (request_.stream) {
    if (!delta.text.empty() || !delta.tokens.empty() || delta.ended) {
      exchange_->write(
          delta_chunk(head_, static_cast<int32_t>(index), delta, reason, logprobs(), ready_->text.tokenizer));
    }
  } else {
    answer.finished.text += delta.text;
    for (TokenInfo& token : delta.tokens) answer.finished.tokens.push_back(std::move(token));
    answer.finished.finish_reason = reason;
  }
  if (delta.ended && --open_ == 0) finish();
}

void Generation::finish() {
  done_ = true;
  for (size_t i = 0; i < answers_.size(); ++i) {
    usage_.completion_tokens += answers_[i].choice.tokens();
    if (i % static_cast<size_t>(request_.choices) == 0) usage_.cached_tokens += answers_[i].choice.reused();
  }
  if (!request_.stream) {
    std::vector<FinishedChoice> choices;
    for (Answer& answer : answers_) choices.push_back(std::move(answer.finished));
    HttpResponse response;
    response.body = answer_body(head_, choices, logprobs(), usage_, ready_->text.tokenizer);
    return exchange_->respond(std::move(response));
  }
  if (request_.include_usage) exchange_->write(usage_chunk(head_, usage_));
  exchange_->write(kDoneChunk);
  exchange_->end_stream();
}

void Generation::fail_with(const Error& error) {
  cancel_all();
  if (request_.stream) {
    exchange_->write(error_chunk(error));
    return exchange_->end_stream();
  }
  HttpResponse response;
  response.status = status_of(error);  // a grammar that turns out to be too much is the client's
  response.body = error_body(response.status, error.message);
  exchange_->respond(std::move(response));
}

void Generation::cancel_all() {
  done_ = true;
  for (const Answer& answer : answers_) {
    if (!answer.choice.ended()) ready_->loop->cancel(answer.ticket);
  }
}

}  // namespace cohort::server
