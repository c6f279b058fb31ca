// `cohort run` without a prompt: a conversation, or beginnings to continue, line by line.
#pragma once

#include "cli/run_streams.h"

namespace cohort::cli {

/// Reads lines of standard input until its end. With a chat template each is the user's turn of one conversation;
/// without, it is continued. On a terminal, Ctrl-C ends an answer, or the program when it waits for a line; elsewhere
/// it ends the program. With options.json every line's result is one line of JSON, {"error": ...} for a line that
/// failed. The caller holds an InterruptGuard. Returns the exit code: 0, 1 when a line failed, 130 when interrupted.
int chat(Engine& engine, const TextModel& text, const RunOptions& options);

}  // namespace cohort::cli
