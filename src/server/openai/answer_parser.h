// From the text that a model writes to the parts of a chat answer: its reasoning, its calls of tools, and the rest.
// Works on text as it comes, so that arguments can be streamed. Nothing that the model has written to its end is lost:
// what begins like a call and is none is content.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/answer_part.h"
#include "server/openai/gemma_call.h"
#include "server/openai/harmony.h"

namespace cohort::server {

/// How a model's template spells calls.
enum class ToolFormat {
  none,     // there are no tools
  hermes,   // <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Qwen, Hermes; also what the generic prompt asks
            // for
  mistral,  // [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]
  llama,    // {"name": ..., "parameters": {...}}, perhaps after <|python_tag|>
  gemma,    // <|tool_call>call:name{key:<|"|>text<|"|>, ...}<tool_call|>
  harmony   // <|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}: gpt-oss
};

struct AnswerSyntax {
  bool reasoning = false;         // a thought at the beginning is set apart
  bool begins_reasoning = false;  // the prompt has opened it
  ToolFormat tools = ToolFormat::none;
  std::vector<std::string> tool_names;
  std::string_view thought = "<think>", thought_end = "</think>";
  bool harmony = false;  // messages with channels; the rest but `tools` is then of no account

  bool plain() const { return !reasoning && !harmony && tools == ToolFormat::none; }
};

/// One call's JSON object, byte by byte.
class CallScanner {
 public:
  /// True while the object goes on; false when this byte is not part of it any more.
  bool push(char c);
  bool done() const { return state_ == State::done; }
  bool broken() const { return state_ == State::broken; }
  const std::string& raw() const { return raw_; }
  const std::string& name() const { return name_; }
  /// Arguments that have come since the last time.
  std::string take_arguments();
  bool has_arguments() const { return has_arguments_; }

 private:
  enum class State { object, key, colon, value, after, done, broken };
  bool value_byte(char c);
  void end_value();
  State state_ = State::object;
  std::string raw_, token_, key_, name_, arguments_;
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, streaming_ = false, has_arguments_ = false, first_member_ = true;
};

class AnswerParser {
 public:
  explicit AnswerParser(AnswerSyntax syntax);
  std::vector<AnswerPart> push(std::string_view text);
  /// The rest, when the text has ended. `cut`: not by the model, but in the middle of what it wrote (its tokens were
  /// used up); what then is the beginning of a marker or of a call without a name yet is dropped: it was becoming a
  /// call, and no reader of the content should find pieces of it.
  std::vector<AnswerPart> finish(bool cut);
  size_t calls() const { return harmony_ ? harmony_->calls() : calls_; }

 private:
  enum class State { start, reasoning, content, call, after_call };
  bool step();
  bool step_start();
  bool step_reasoning();
  bool step_content();
  bool step_call();
  bool step_after_call();
  void begin_call(std::string opener);
  void report_call();
  void abandon_call();
  bool may_become_call() const;
  void drop_unfinished();
  void emit(AnswerPart::Kind kind, std::string_view text);
  void skip_space();
  std::string_view opener() const;

  AnswerSyntax syntax_;
  std::optional<HarmonyParser> harmony_;  // reads everything, if it is there
  State state_ = State::start;
  std::string held_;    // not decided yet
  std::string opener_;  // what the call began with
  CallScanner scanner_;
  GemmaCall gemma_;  // writes what the scanner reads
  std::vector<AnswerPart> parts_;
  size_t calls_ = 0;
  bool announced_ = false;  // the client knows of the call
  bool trim_ = false;       // space at the beginning of the content belongs to what came before
  bool any_content_ = false;
};

}  // namespace cohort::server
