#include "server/generation.h"

#include <chrono>
#include <random>

#include "base/log.h"
#include "base/result.h"
#include "server/openai/fields.h"

namespace cohort::server {
namespace {

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

/// Markers of thoughts and calls that are special tokens: they are not part of the text unless asked for. Those of
/// messages mean something else in other models.
std::vector<int32_t> special_markers(const text::Tokenizer& tokenizer, bool harmony) {
  std::vector<int32_t> out;
  std::vector<const char*> markers{"<think>",      "</think>",       "<tool_call>",  "</tool_call>",
                                   "[TOOL_CALLS]", "<|python_tag|>", "<|tool_call>", "<tool_call|>",
                                   "<|\"|>",       "<|channel>",     "<channel|>"};
  if (harmony) {
    markers = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"};
  }
  for (const char* marker : markers) {
    const auto id = tokenizer.token_id(marker);
    if (id && tokenizer.is_special(*id)) out.push_back(*id);
  }
  return out;
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The engine's words about a sequence, with the field of the request that they are about.
Error of_request(const GenerationRequest& request, Error error) {
  constexpr std::string_view kPrompt = "the prompt", kBias = "logit_bias";
  if (error.code != ErrorCode::invalid_argument && error.code != ErrorCode::capacity) return error;
  std::string& message = error.message;
  if (message.starts_with("the queue")) return error;
  if (message.starts_with(kPrompt)) {
    message.replace(0, kPrompt.size(), fmt::format("'{}'", prompt_field(request.api)));
  } else if (message.starts_with(kBias)) {
    message.replace(0, kBias.size(), fmt::format("'{}'", kBias));
  }
  return of_field(request.max_tokens ? "max_tokens" : prompt_field(request.api), std::move(error));
}

}  // namespace

Generation::Generation(std::shared_ptr<Exchange> exchange, std::shared_ptr<const Ready> ready,
                       GenerationRequest request)
    : exchange_(std::move(exchange)), ready_(std::move(ready)), request_(std::move(request)) {
  head_.api = request_.api;
  head_.id = fmt::format("{}-{:016x}", request_.api == Api::chat ? "chatcmpl" : "cmpl", random_number());
  head_.model = ready_->name;
  head_.created = unix_seconds();
  head_.usage = request_.include_usage;
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
      plan.syntax.plain() ? std::vector<int32_t>() : special_markers(ready_->text.tokenizer, plan.syntax.harmony);
  std::vector<EventHandler> handlers;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (i % static_cast<size_t>(request_.choices) == 0)
      usage_.prompt_tokens += static_cast<int64_t>(sequences[i].prompt.size());
    Answer& answer = answers_.emplace_back(Choice(ready_->text.tokenizer, request_.stop, logprobs(), spoken));
    if (!plan.syntax.plain()) answer.parser.emplace(plan.syntax);
    handlers.emplace_back([self = shared_from_this(), i](std::vector<TokenEvent> events) {
      self->exchange_->dispatch([self, i, events = std::move(events)] { self->push_all(i, events); });
    });
  }
  open_ = answers_.size();
  exchange_->notes().model = head_.model;
  exchange_->notes().prompt_tokens = usage_.prompt_tokens;
  const auto tickets = ready_->loop->submit(std::move(sequences), std::move(handlers));
  if (!tickets) return tl::unexpected<Error>(of_request(request_, tickets.error()));
  for (size_t i = 0; i < tickets->size(); ++i) answers_[i].ticket = (*tickets)[i];
  exchange_->notes().answer = head_.id;
  exchange_->on_gone([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->note("cancelled");
    self->cancel_all();
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
  if (done_) return;  // the exchange may have its next request by now
  exchange_->hold();
  if (auto& first = exchange_->notes().first_token; !first) first = std::chrono::steady_clock::now();
  for (const TokenEvent& event : events) push(index, event);
  exchange_->release();
}

void Generation::push(size_t index, const TokenEvent& event) {
  if (done_) return;
  Answer& answer = answers_[index];
  if (answer.choice.ended()) return;
  Delta delta = answer.choice.push(event);
  std::string_view reason = answer.choice.finish_reason();
  if (reason == "error") {
    answer.reason = reason;
    return fail_with(answer.choice.error());
  }
  if (answer.choice.ended_early()) ready_->loop->cancel(answer.ticket);
  if (answer.parser) {
    push_parts(index, answer.parser->push(delta.text));
    delta.text.clear();
    // A call that a stop string cut is not complete, and its markers are no text, as at max_tokens.
    const bool cut = reason == "length" || answer.choice.cut_by_stop();
    if (delta.ended) push_parts(index, answer.parser->finish(cut));
    if (reason == "stop" && !cut && answer.parser->calls() > 0) reason = "tool_calls";
  }
  answer.reason = reason;
  if (request_.stream) {
    if (!delta.text.empty() || !delta.tokens.empty() || delta.ended) {
      exchange_->write(
          delta_chunk(head_, static_cast<int32_t>(index), delta, reason, logprobs(), ready_->text.tokenizer));
    }
  } else {
    answer.finished.text += delta.text;
    for (TokenInfo& token : delta.tokens) answer.finished.tokens.push_back(std::move(token));
  }
  if (delta.ended && --open_ == 0) finish();
}

/// For the log. What ended has its reason, what has not has `finish_reason`.
void Generation::note(std::string_view finish_reason) {
  RequestNotes& notes = exchange_->notes();
  for (size_t i = 0; i < answers_.size(); ++i) {
    const Choice& choice = answers_[i].choice;
    notes.generated_tokens += choice.tokens();
    if (i % static_cast<size_t>(request_.choices) == 0) notes.cached_tokens += choice.reused();
    if (i > 0) notes.finish_reason += ",";
    notes.finish_reason += choice.ended() ? answers_[i].reason : finish_reason;
  }
}

void Generation::finish() {
  done_ = true;
  note({});
  usage_.completion_tokens = exchange_->notes().generated_tokens;
  usage_.cached_tokens = exchange_->notes().cached_tokens;
  if (!request_.stream) {
    std::vector<FinishedChoice> choices;
    for (Answer& answer : answers_) {
      answer.finished.finish_reason = answer.reason;
      choices.push_back(std::move(answer.finished));
    }
    HttpResponse response;
    response.body = answer_body(head_, choices, logprobs(), usage_, ready_->text.tokenizer);
    return exchange_->respond(std::move(response));
  }
  if (request_.include_usage) exchange_->write(usage_chunk(head_, usage_));
  exchange_->write(kDoneChunk);
  exchange_->end_stream();
}

void Generation::fail_with(const Error& error) {
  note("error");
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
