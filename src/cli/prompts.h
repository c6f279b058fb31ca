// The prompts of `cohort run`, wherever they come from.
#pragma once

#include <string>
#include <vector>

#include "cohort/error.h"

namespace cohort::cli {

struct PromptSources {
  std::vector<std::string> texts;  // -p
  std::string file;                // -f: one prompt; files may be pipes, such as /dev/stdin
  std::string lines;               // --prompts: one prompt a line
  int copies = 0;                  // --parallel: above 1, a single prompt becomes so many
};

struct Prompts {
  std::vector<std::string> texts;
  std::vector<std::string> notes;  // what was left out or may surprise
};

/// Collects texts, then the file, then the lines. The file's bytes are the prompt, without one line break at their end.
/// In a line, "\n" and "\\" stand for a line break and a backslash; empty lines are no prompts, those of white space
/// alone are noted. Errors name the flag, the place and the fix: not_found, io, invalid_argument (not UTF-8, no prompt,
/// too large).
Expected<Prompts> collect_prompts(const PromptSources& sources);

}  // namespace cohort::cli
