// A completion request in flight: its sequences in the engine, its answers, its client.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "server/http/exchange.h"
#include "server/openai/answer_parser.h"
#include "server/openai/choice.h"
#include "server/openai/request.h"
#include "server/openai/response.h"
#include "server/service.h"
#include "text/content_marks.h"

namespace cohort::server {

/// Held by the engine loop's handlers, so it lives until its last sequence has ended. Runs on its exchange's strand.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  /// Tokenises, submits and answers, now or as tokens come; errors become the answer.
  static void start(const std::shared_ptr<Exchange>& exchange, std::shared_ptr<const Ready> ready,
                    GenerationRequest request);

  Generation(std::shared_ptr<Exchange> exchange, std::shared_ptr<const Ready> ready, GenerationRequest request);

 private:
  Expected<void> submit();
  void push_all(size_t index, const std::vector<TokenEvent>& events);
  void push(size_t index, const TokenEvent& event);
  void push_parts(size_t index, std::vector<AnswerPart> parts);
  void finish();
  void fail_with(const Error& error);
  void cancel_all();
  void note(std::string_view finish_reason);
  bool logprobs() const { return request_.sampling.logprobs >= 0; }

  std::shared_ptr<Exchange> exchange_;
  std::shared_ptr<const Ready> ready_;
  GenerationRequest request_;
  AnswerHead head_;
  Usage usage_;
  struct Answer {
    explicit Answer(Choice made) : choice(std::move(made)) {}
    Choice choice;
    Ticket ticket = 0;
    std::string_view reason;             // finish_reason, once it has ended
    FinishedChoice finished;             // grows when the answer is not streamed
    std::optional<AnswerParser> parser;  // of chat answers that may have parts
    std::vector<std::string> call_ids;
  };
  std::vector<Answer> answers_;
  size_t open_ = 0;  // answers that have not ended
  bool done_ = false;
};

/// The field that a request's prompts come from.
constexpr std::string_view prompt_field(Api api) {
  return api == Api::chat ? "messages" : "prompt";
}

/// Token ids of a prompt as the request means it. Errors: invalid_argument (empty, and the model has no token that
/// begins a text; no chat template; the conversation does not fit it), those of the tokenizer.
Expected<std::vector<int32_t>> encode_prompt(const TextModel& text, const Prompt& prompt);
/// A conversation as the model's chat template writes it; what its messages and tools say is text, whatever special
/// tokens it spells, but for the marks of thoughts in the model's own turns, which templates look for. `tools` may be
/// empty.
Expected<MarkedText> render_messages(const TextModel& text, const nlohmann::ordered_json& messages,
                                     const nlohmann::ordered_json& tools, bool add_generation_prompt,
                                     const nlohmann::ordered_json& variables);

/// What a request becomes: sequences, for each prompt `choices` of them, and how to read their answers.
struct Plan {
  std::vector<SequenceRequest> sequences;
  AnswerSyntax syntax;
};
/// `seed` where the request has none.
Expected<Plan> make_plan(const GenerationRequest& request, const Ready& ready, uint64_t seed);

}  // namespace cohort::server
