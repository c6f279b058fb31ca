// Runs the program as people do, with a pipe or a terminal as its input.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::cli {

inline const std::filesystem::path kTiny =
    std::filesystem::path(COHORT_SOURCE_DIR) / "tests/golden/gguf/qwen3_moe-bf16.gguf";

inline const std::filesystem::path kDraft = std::filesystem::path(COHORT_SOURCE_DIR) / "models/libris-draft-q8_0.gguf";

class Program {
 public:
  enum class Input { pipe, terminal };

  /// Starts `cohort ARGUMENTS`; stdout and stderr are pipes, with a terminal as input stderr is that terminal.
  explicit Program(const std::vector<std::string>& arguments, Input input = Input::pipe) {
    int in[2], out[2], err[2];
    if (input == Input::pipe) {
      if (::pipe2(in, O_CLOEXEC) != 0) ADD_FAILURE() << "no pipe";
    } else if (::openpty(&in[1], &in[0], nullptr, nullptr, nullptr) != 0) {
      ADD_FAILURE() << "no terminal";
    }
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) ADD_FAILURE() << "no pipe";
    std::vector<std::string> words{COHORT_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::dup2(input == Input::terminal ? in[0] : err[1], STDERR_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(99);
    }
    ::close(in[0]);
    ::close(out[1]);
    ::close(err[1]);
    input_ = in[1];
    fds_[0] = out[0];
    fds_[1] = input == Input::terminal ? ::dup(in[1]) : err[0];
    if (input == Input::terminal) ::close(err[0]);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    close_input();
    for (const int fd : fds_) ::close(fd);
  }

  void type(std::string_view text) {
    if (::write(input_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) ADD_FAILURE() << "not typed";
  }
  void close_input() {
    if (input_ >= 0) ::close(input_);
    input_ = -1;
  }
  void interrupt() { ::kill(pid_, SIGINT); }

  /// Reads until stdout (0) or stderr (1) holds `text` at or behind `from`; false when the program ended, or after a
  /// minute.
  bool wait_for(int stream, std::string_view text, size_t from = 0) {
    while (texts_[stream].find(text, from) == std::string::npos) {
      if (!read_some()) return false;
    }
    return true;
  }
  /// Reads until stdout holds anything.
  bool wait_for_output() {
    while (texts_[0].empty()) {
      if (!read_some()) return false;
    }
    return true;
  }
  /// Reads to the end; the exit code, or minus the signal that ended the program.
  int finish() {
    while (read_some()) {
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  const std::string& out() const { return texts_[0]; }
  const std::string& err() const { return texts_[1]; }

 private:
  bool read_some() {
    pollfd polled[2] = {{fds_[0], POLLIN, 0}, {fds_[1], POLLIN, 0}};
    for (int i = 0; i < 2; ++i) {
      if (ended_[i]) polled[i].fd = -1;
    }
    if (ended_[0] && ended_[1]) return false;
    if (std::chrono::steady_clock::now() > deadline_ || ::poll(polled, 2, 1000) < 0) return false;
    for (int i = 0; i < 2; ++i) {
      if (ended_[i] || polled[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t got = ::read(fds_[i], buffer, sizeof buffer);
      if (got <= 0) ended_[i] = true;  // a terminal whose program has ended reports an error
      if (got > 0) texts_[i].append(buffer, static_cast<size_t>(got));
    }
    return true;
  }

  pid_t pid_ = -1;
  int input_ = -1;
  int fds_[2] = {-1, -1};
  bool ended_[2] = {false, false};
  std::string texts_[2];
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::now() + std::chrono::minutes(1);
};

struct Result {
  int code = 0;
  std::string out, err;
};

/// Runs the program to its end with `input` on a pipe.
inline Result run(const std::vector<std::string>& arguments, std::string_view input = {}) {
  Program program(arguments);
  if (!input.empty()) program.type(input);
  program.close_input();
  Result result;
  result.code = program.finish();
  result.out = program.out();
  result.err = program.err();
  return result;
}

/// `run` of the tiny model with greedy tokens.
inline std::vector<std::string> tiny(const std::vector<std::string>& more) {
  std::vector<std::string> all{"run", "-m", kTiny.string(), "--threads", "1", "--temp", "0"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

inline ::testing::AssertionResult says(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "no \"" << part << "\" in:\n" << text;
}

}  // namespace cohort::cli
