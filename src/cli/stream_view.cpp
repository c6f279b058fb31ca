#include "cli/stream_view.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>

namespace cohort::cli {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(50);  // faster than a person reads, slower than a step
constexpr const char* kBold = "\033[1m";
constexpr const char* kPlain = "\033[0m";

struct Size {
  size_t columns = 80, rows = 24;
};

Size terminal_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

/// The last `lines` lines of the text, wrapped at `columns` cells; control characters become spaces.
std::vector<std::string> tail(const std::string& text, size_t columns, size_t lines) {
  std::vector<std::string> wrapped(1);
  size_t width = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t length = std::max<utf8proc_ssize_t>(utf8proc_iterate(bytes, left, &code), 1);
    if (code == '\n') {
      wrapped.emplace_back();
      width = 0;
    } else {
      const bool control = code < ' ' || code == 0x7f;
      const auto cells = control ? size_t{1} : static_cast<size_t>(std::max(utf8proc_charwidth(code), 0));
      if (width + cells > columns) {
        wrapped.emplace_back();
        width = 0;
      }
      wrapped.back().append(control ? " "
                                    : std::string(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length)));
      width += cells;
    }
    bytes += length;
    left -= length;
  }
  if (wrapped.size() > lines) wrapped.erase(wrapped.begin(), wrapped.end() - static_cast<std::ptrdiff_t>(lines));
  return wrapped;
}

}  // namespace

StreamView::StreamView(std::vector<std::string> titles, bool live)
    : titles_(std::move(titles)), texts_(titles_.size()), live_(live) {}

// Whatever ends the run, the shell's prompt starts on a line of its own.
StreamView::~StreamView() {
  if (started_ && !finished_) fmt::print("\n");
}

void StreamView::start() {
  if (started_) return;
  started_ = true;
  if (titles_.size() == 1) fmt::print("{}", titles_[0]);
}

void StreamView::append(size_t stream, const std::string& text) {
  start();
  texts_[stream] += text;
  if (titles_.size() > 1) return;
  fmt::print("{}", text);
  std::fflush(stdout);
}

void StreamView::tick() {
  if (!live_ || titles_.size() == 1) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_draw_ < kRedraw) return;
  last_draw_ = now;
  draw();
}

void StreamView::draw() {
  const Size size = terminal_size();
  // Only as many streams as leave each a title and a line; the others show up at the end.
  const size_t shown = std::min(titles_.size(), std::max<size_t>(1, (size.rows - 1) / 2));
  const size_t lines = std::max<size_t>(1, (size.rows - 1) / shown - 1);
  std::string out;
  if (drawn_lines_ > 0) out += fmt::format("\033[{}A", drawn_lines_);
  drawn_lines_ = 0;
  for (size_t i = 0; i < shown; ++i) {
    out += fmt::format("\033[K{}{}{}\n", kBold, tail(titles_[i], size.columns, 1).back(), kPlain);
    std::vector<std::string> text = tail(texts_[i], size.columns, std::min<size_t>(lines, 4));
    text.resize(std::min<size_t>(lines, 4));
    for (const std::string& line : text) out += fmt::format("\033[K{}\n", line);
    drawn_lines_ += 1 + text.size();
  }
  fmt::print("{}", out);
  std::fflush(stdout);
}

void StreamView::finish() {
  start();
  finished_ = true;
  if (titles_.size() == 1) {
    fmt::print("\n");
    return;
  }
  if (drawn_lines_ > 0) fmt::print("\033[{}A\033[J", drawn_lines_);
  for (size_t i = 0; i < titles_.size(); ++i) {
    fmt::print("{}[{}]{} {}{}\n\n", live_ ? kBold : "", i + 1, live_ ? kPlain : "", titles_[i], texts_[i]);
  }
}

}  // namespace cohort::cli
