#include "formats/model_files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

#include "base/result.h"

namespace cohort {

namespace fs = std::filesystem;

std::vector<fs::path> model_files(const fs::path& model) {
  std::error_code ignored;
  std::vector<fs::path> files;
  const bool folder = fs::is_directory(model, ignored);
  const std::string name = model.filename().string();
  constexpr std::string_view kSplit = "-00001-of-";
  const size_t split = name.find(kSplit);
  if (!folder && split == std::string::npos) return {model};
  const fs::path parent = folder ? model : model.has_parent_path() ? model.parent_path() : ".";
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const std::string other = entry.path().filename().string();
    const std::string ending = entry.path().extension().string();
    const bool part = folder ? ending == ".safetensors" || ending == ".json"
                             : other.size() == name.size() && other.starts_with(name.substr(0, split)) &&
                                   other.ends_with(name.substr(split + kSplit.size()));
    if (part && entry.is_regular_file(ignored)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

Expected<void> check_output_file(const fs::path& output, const std::vector<fs::path>& inputs) {
  if (!output.has_filename())
    return fail(ErrorCode::invalid_argument, "the output file has no name: '{}'", output.string());
  std::error_code ignored;
  if (fs::is_directory(output, ignored))
    return fail(ErrorCode::invalid_argument, "the output '{}' is a folder; name a file", output.string());
  const fs::path folder = output.has_parent_path() ? output.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, ignored))
    return fail(ErrorCode::not_found, "the folder '{}' does not exist", folder.string());
  if (access(folder.c_str(), W_OK) != 0)
    return fail(ErrorCode::io, "no file can be written in '{}': {}", folder.string(), std::strerror(errno));
  for (const fs::path& input : inputs) {
    if (fs::equivalent(output, input, ignored)) {
      return fail(ErrorCode::invalid_argument, "'{}' is a file that is read; choose another output", output.string());
    }
  }
  return {};
}

}  // namespace cohort
