// Templates against what Python's jinja2 makes of them: fixtures written by tools/template_compare.py. With
// COHORT_TEMPLATE_CASES set to a folder of such files, those are tested too (the script's random comparison does so).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "text/template/chat.h"
#include "text/template/template.h"

namespace cohort {
namespace {

using Json = nlohmann::ordered_json;

const std::filesystem::path kGolden = std::filesystem::path(COHORT_SOURCE_DIR) / "tests/golden/template";

/// The fixtures' clock: Saturday, 9 March 2024, 14:05:07.
std::tm fixed_clock() {
  std::tm time{};
  time.tm_year = 124, time.tm_mon = 2, time.tm_mday = 9;
  time.tm_hour = 14, time.tm_min = 5, time.tm_sec = 7;
  time.tm_wday = 6, time.tm_yday = 68;
  return time;
}

std::vector<std::filesystem::path> fixtures(const std::filesystem::path& folder, const std::string& prefix) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json" && entry.path().filename().string().rfind(prefix, 0) == 0) {
      paths.push_back(entry.path());
    }
  }
  return paths;
}

Json read_json(const std::filesystem::path& path) {
  return Json::parse(read_text_file(path).value());
}

/// Compares with "expected", or expects an error ("error": true, or the words it must contain).
void check(const Json& fixture, const Expected<std::string>& actual, const std::string& what) {
  if (fixture.contains("expected")) {
    ASSERT_TRUE(actual) << what << "\nexpected: " << fixture["expected"] << "\nerror: " << actual.error().message;
    EXPECT_EQ(*actual, fixture["expected"].get<std::string>()) << what;
    return;
  }
  ASSERT_FALSE(actual) << what << "\nexpected an error, got: " << Json(*actual);
  if (!fixture["error"].is_string()) return;
  EXPECT_EQ(actual.error().code, ErrorCode::invalid_argument) << what;
  EXPECT_NE(actual.error().message.find(fixture["error"].get<std::string>()), std::string::npos)
      << what << "\nerror: " << actual.error().message;
}

void check_snippets(const std::filesystem::path& path) {
  Json file = read_json(path);
  for (const Json& fixture : file["cases"]) {
    auto source = fixture["template"].get<std::string>();
    const Json& context = fixture.contains("context") ? fixture["context"] : file["context"];
    auto parsed = Template::parse(source);
    Expected<std::string> rendered;
    if (parsed) {
      rendered = parsed->render(context, fixed_clock);
    } else {
      rendered = tl::unexpected(parsed.error());
    }
    check(fixture, rendered, path.filename().string() + ": " + source);
  }
}

TEST(TemplateGolden, Snippets) {
  auto paths = fixtures(kGolden, "snippets");
  ASSERT_FALSE(paths.empty());
  for (const auto& path : paths) check_snippets(path);
}

TEST(TemplateGolden, RandomCases) {
  const char* folder = std::getenv("COHORT_TEMPLATE_CASES");
  if (folder == nullptr) GTEST_SKIP() << "COHORT_TEMPLATE_CASES names no folder";
  for (const auto& path : fixtures(folder, "")) check_snippets(path);
}

TEST(TemplateGolden, Chats) {
  auto paths = fixtures(kGolden, "chat_");
  ASSERT_GE(paths.size(), 14u);
  Json conversations = read_json(kGolden / "conversations.json");
  for (const auto& path : paths) {
    Json file = read_json(path);
    auto chat_template = Template::parse(read_text_file(kGolden / file["template"].get<std::string>()).value());
    ASSERT_TRUE(chat_template) << path << ": " << chat_template.error().message;
    for (const Json& fixture : file["cases"]) {
      auto name = fixture["conversation"].get<std::string>();
      const Json& conversation = conversations.at(name);
      auto member = [&](const char* key) { return conversation.contains(key) ? &conversation[key] : nullptr; };
      ChatOptions options;
      options.tools = member("tools");
      options.documents = member("documents");
      options.variables = member("variables");
      options.add_generation_prompt = conversation.value("add_generation_prompt", false);
      options.bos_token = file["bos_token"].get<std::string>();
      options.eos_token = file["eos_token"].get<std::string>();
      options.clock = fixed_clock;
      check(fixture, render_chat(*chat_template, conversation["messages"], options),
            path.filename().string() + ": " + name);
    }
  }
}

}  // namespace
}  // namespace cohort
