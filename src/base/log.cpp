#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace cohort::log {
namespace {

spdlog::logger& logger() {
  static auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("cohort", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%^%L%$ %v");
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

void set_level(Level level) {
  logger().set_level(to_spdlog(level));
}

void write(Level level, std::string_view message) {
  logger().log(to_spdlog(level), "{}", message);
}

}  // namespace cohort::log
