#include "cli/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/counted.h"
#include "base/result.h"
#include "cli/interrupt.h"
#include "cli/values.h"
#include "models/model.h"
#include "text/content_marks.h"
#include "text/template/chat.h"

namespace cohort::cli {
namespace {

/// Lines are turns of a conversation; otherwise each is the beginning of a text.
bool chats(const TextModel& text) {
  return text.chat_template.has_value() && !text.base_model;
}

class Chat {
 public:
  Chat(Engine& engine, const TextModel& text, const RunOptions& options)
      : engine_(engine), text_(text), options_(options), templated_(chats(text)) {}

  /// Answers one line; `number` from 1.
  Expected<void> answer(const std::string& line, size_t number) {
    const std::string where = first_invalid_byte(line);
    if (!where.empty()) {
      return fail(ErrorCode::invalid_argument, "line {} of the input is not UTF-8: {} belongs to no character; {}",
                  number, where, kUtf8Fix);
    }
    if (!templated_) return generate(line, {line, {}});
    messages_.push_back({{"role", "user"}, {"content", line}});
    auto result = answer_turn(line);
    if (!result) messages_.erase(messages_.size() - 1);  // as if it had not been said
    return result;
  }

 private:
  Expected<void> answer_turn(const std::string& line) {
    ChatOptions chat;
    const auto token = [&](std::optional<int32_t> id) {
      return id ? std::optional(std::string(text_.tokenizer.token_text(*id))) : std::nullopt;
    };
    chat.bos_token = token(text_.tokenizer.bos_id());
    chat.eos_token = token(text_.tokenizer.eos_id());
    // What was typed is text, even when it spells a token that ends a turn.
    const std::array<const nlohmann::ordered_json*, 1> texts{&messages_};
    COHORT_ASSIGN(const ContentMarks marks, ContentMarks::create(text_.tokenizer, texts));
    nlohmann::ordered_json messages = messages_;
    marks.put_into_messages(messages);
    COHORT_ASSIGN(const std::string prompt, render_chat(*text_.chat_template, messages, chat));
    return generate(line, marks.take_out(prompt));
  }

  Expected<void> generate(const std::string& line, MarkedText prompt) {
    std::vector<Stream> streams{{.prompt = std::move(prompt.text), .literal = std::move(prompt.literal)}};
    bool started = false;
    auto totals = run_streams(engine_, text_, options_, templated_, streams, [&](size_t, const std::string& piece) {
      if (options_.json) return;
      if (!started && !templated_) fmt::print("{}", line);
      started = true;
      fmt::print("{}", piece);
      std::fflush(stdout);
    });
    if (started) fmt::print("\n");
    std::fflush(stdout);
    if (!totals) return tl::unexpected<Error>(totals.error());
    if (!streams[0].error.empty()) return fail(ErrorCode::internal, "{}", streams[0].error);
    if (streams[0].finish_reason == to_string(FinishReason::context)) {
      fmt::print(stderr, "the answer stopped at the end of the context ({}; -c)\n",
                 counted(engine_.model().context(), "position"));
    }
    if (templated_) messages_.push_back({{"role", "assistant"}, {"content", streams[0].text}});
    if (options_.json) {
      nlohmann::ordered_json out = to_json(streams[0]);
      out["prompt"] = line;
      add_totals(*totals, out);
      print_json(out, -1);
    } else {
      print_totals(engine_, *totals);
    }
    return {};
  }

  Engine& engine_;
  const TextModel& text_;
  const RunOptions& options_;
  bool templated_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

}  // namespace

int chat(Engine& engine, const TextModel& text, const RunOptions& options) {
  if (!text.chat_template_problem.empty())
    fmt::print(stderr, "the model's chat template cannot be used: {}\n", text.chat_template_problem);
  const bool terminal = ::isatty(STDIN_FILENO) != 0;
  fmt::print(stderr, "{} End with Ctrl-D.\n",
             chats(text) ? "Chat: every line is your turn." : "This model only continues texts: type a beginning.");
  Chat conversation(engine, text, options);
  int exit_code = 0;
  std::string line;
  for (size_t number = 1;; ++number) {
    InterruptGuard::set(InterruptGuard::Mode::end_at_once);
    if (terminal) fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line)) break;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    InterruptGuard::set(InterruptGuard::Mode::ask);
    if (auto answered = conversation.answer(line, number); !answered) {
      exit_code = 1;
      fmt::print(stderr, "cohort run: {}\n", answered.error().message);
      if (options.json) print_json({{"prompt", line}, {"error", answered.error().message}}, -1);
    }
    // Who types goes on; a script's Ctrl-C means the script.
    if (InterruptGuard::interrupted() && !terminal) return kInterruptedExit;
  }
  if (terminal) fmt::print(stderr, "\n");
  return exit_code;
}

}  // namespace cohort::cli
