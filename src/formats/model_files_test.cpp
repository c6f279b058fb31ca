#include "formats/model_files.h"

#include <gtest/gtest.h>

#include "base/test_folder.h"

namespace cohort {
namespace {

TEST(model_files, partsOfASplitAndOfAFolder) {
  const TestFolder folder;
  for (const char* name : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf",
                           "n-00001-of-00003.gguf", "a.safetensors", "config.json", "notes.txt"}) {
    folder.write(name, "x");
  }
  EXPECT_EQ(model_files(folder / "m-00001-of-00003.gguf").size(), 3U);
  EXPECT_EQ(model_files(folder / "m-00001-of-00003.gguf").back().filename(), "m-00003-of-00003.gguf");
  EXPECT_EQ(model_files(folder.path()).size(), 2U);
  EXPECT_EQ(model_files(folder / "notes.txt"), std::vector{folder / "notes.txt"});
}

TEST(model_files, outputs) {
  const TestFolder folder;
  const auto input = folder.write("in", "x");
  std::filesystem::create_hard_link(input, folder / "link");
  EXPECT_TRUE(check_output_file(folder / "out", {input}));
  for (const char* name : {"in", "link"}) {
    const auto refused = check_output_file(folder / name, {folder / "missing", input});
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(refused.error().message.find(name), std::string::npos);
  }
  EXPECT_EQ(check_output_file(folder.path(), {}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(check_output_file(folder / "no" / "file", {}).error().code, ErrorCode::not_found);
  EXPECT_EQ(check_output_file("", {}).error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace cohort
