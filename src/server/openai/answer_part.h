// A piece of a chat answer.
#pragma once

#include <cstddef>
#include <string>

namespace cohort::server {

struct AnswerPart {
  enum class Kind { content, reasoning, call, arguments };
  Kind kind = Kind::content;
  std::string text;  // of a call: its name
  size_t call = 0;   // which one
};

}  // namespace cohort::server
