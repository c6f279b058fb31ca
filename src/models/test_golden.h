// What the tests of configurations share: the golden models' files, and errors that must say something.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json.h"
#include "cohort/error.h"

namespace cohort {

inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(COHORT_SOURCE_DIR) / "tests/golden" / name;
}

inline nlohmann::json golden_config(const std::string& model) {
  auto config = read_json_file(golden("models/" + model + "/config.json"));
  EXPECT_TRUE(config) << config.error().message;
  return *config;
}

template <class T>
void expect_message(const Expected<T>& result, std::string_view part) {
  ASSERT_FALSE(result) << part;
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
}

}  // namespace cohort
