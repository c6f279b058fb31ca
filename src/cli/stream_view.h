// Shows streams as they grow: one prints as it comes; several share the terminal, each with its last lines; piped
// output gets each stream whole, in order, when all are done.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace cohort::cli {

class StreamView {
 public:
  /// One title per stream (its prompt). `live`: stdout is a terminal.
  StreamView(std::vector<std::string> titles, bool live);
  ~StreamView();
  StreamView(const StreamView&) = delete;
  StreamView& operator=(const StreamView&) = delete;

  /// The first call prints a single stream's title, so that a request that is refused prints nothing.
  void append(size_t stream, const std::string& text);
  /// Redraws if it is time; call it after every step.
  void tick();
  /// The final state: every stream's whole text.
  void finish();

 private:
  void start();
  void draw();
  std::vector<std::string> titles_, texts_;
  bool live_;
  bool started_ = false, finished_ = false;
  size_t drawn_lines_ = 0;
  std::chrono::steady_clock::time_point last_draw_;
};

}  // namespace cohort::cli
