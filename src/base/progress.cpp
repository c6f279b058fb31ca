#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace cohort {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kLineEvery = std::chrono::seconds(2);  // short work prints no lines at all
constexpr size_t kBarCells = 24;

size_t terminal_columns(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string human_seconds(double seconds) {
  auto whole = static_cast<int64_t>(std::min(seconds, 1e9));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

}  // namespace

std::string human_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"kB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < kUnits.size()) value /= 1000, ++unit;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

Progress::Progress(std::string what, std::FILE* stream, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      stream_(stream),
      terminal_(::isatty(::fileno(stream)) != 0),
      begin_(Clock::now()),
      next_(begin_ + (terminal_ ? Clock::duration::zero() : kLineEvery)) {}

std::string Progress::amount(uint64_t count) const {
  return unit_.empty() ? human_bytes(count) : fmt::format("{} {}", count, unit_);
}

std::string Progress::line(uint64_t done, uint64_t total, std::string_view note) const {
  double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1.0;
  double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  std::string text = fmt::format("{:3.0f}%  {} of {}", share * 100,
                                 unit_.empty() ? human_bytes(done) : std::to_string(done), amount(total));
  if (seconds > 0.2 && done > 0) {
    const double rate = static_cast<double>(done) / seconds;
    if (unit_.empty()) text += fmt::format("  {}/s", human_bytes(static_cast<uint64_t>(rate)));
    if (done < total) text += fmt::format("  {} left", human_seconds(seconds / share - seconds));
  }
  if (!note.empty()) text += fmt::format("  {}", note);
  return text;
}

void Progress::update(uint64_t done, uint64_t total, std::string_view note) {
  if (terminal_) {
    auto now = Clock::now();
    if (now < next_ && done < total) return;
    next_ = now + kRedraw;
    size_t filled = total > 0 ? static_cast<size_t>(static_cast<double>(kBarCells) * static_cast<double>(done) /
                                                    static_cast<double>(total))
                              : kBarCells;
    std::string text = fmt::format("{} [{}{}] {}", what_, std::string(filled, '#'),
                                   std::string(kBarCells - filled, '.'), line(done, total, note));
    text.resize(std::min(text.size(), terminal_columns(::fileno(stream_)) - 1));
    fmt::print(stream_, "\r\033[K{}", text);
    std::fflush(stream_);
    drawn_ = true;
    return;
  }
  uint64_t percent =
      total > 0 ? static_cast<uint64_t>(static_cast<double>(done) / static_cast<double>(total) * 100) : 100;
  auto now = Clock::now();
  if (percent < next_percent_ || now < next_) return;
  next_ = now + kLineEvery;
  next_percent_ = percent / 10 * 10 + 10;
  fmt::print(stream_, "{} {}\n", what_, line(done, total, note));
  std::fflush(stream_);
}

void Progress::clear() {
  if (!drawn_) return;
  fmt::print(stream_, "\r\033[K");
  std::fflush(stream_);
  drawn_ = false;
}

}  // namespace cohort
