// The files of the page, embedded by cmake/assets.cmake.
#pragma once

#include <span>
#include <string_view>

namespace cohort::server {

struct Asset {
  std::string_view name;  // "page.js"
  std::string_view bytes;
};

std::span<const Asset> assets();

}  // namespace cohort::server
