// Calls as Gemma 4's template spells them, call:name{key:<|"|>text<|"|>,count:2,list:[true,null]}, as the JSON object
// that other templates use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cohort::server {

/// Byte by byte, so that arguments can be streamed.
class GemmaCall {
 public:
  /// What this byte adds to {"name": ..., "arguments": {...}}. Nothing after the end of the call.
  std::string push(char c);
  bool done() const { return state_ == State::done; }
  bool broken() const { return state_ == State::broken; }
  const std::string& raw() const { return raw_; }

 private:
  enum class State { head, name, key, bare_key, quoted_key, value, text, word, after, done, broken };
  std::string key_byte(char c);
  std::string value_byte(char c);
  std::string text_byte(char c);
  std::string after(char c);
  std::string close();
  bool quote_goes_on(char c);

  State state_ = State::head;
  std::string raw_;
  std::string token_;          // a name, key or word in the making
  std::string quote_;          // what has come of <|"|>
  std::vector<char> closers_;  // of the containers that are open
};

}  // namespace cohort::server
