#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "base/json.h"
#include "base/result.h"
#include "formats/safetensors/safetensors.h"

namespace cohort::safetensors {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool file_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// The files of a folder without an index: model.safetensors, or the only *.safetensors file.
Expected<fs::path> single_file(const fs::path& directory) {
  if (file_exists(directory / kSingle)) return directory / kSingle;
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") found.push_back(it->path());
  }
  if (error) return fail(ErrorCode::io, "cannot list '{}': {}", directory.string(), error.message());
  if (found.size() == 1) return found[0];
  if (found.size() > 1) {
    return fail(ErrorCode::not_found,
                "'{}' holds {} safetensors files but no {}; the index says which tensor is in which file",
                directory.string(), found.size(), kIndex);
  }
  return fail(
      ErrorCode::not_found, "'{}' holds neither {} nor {}{}", directory.string(), kSingle, kIndex,
      file_exists(directory / "pytorch_model.bin") ? "; its pytorch_model.bin must be saved as safetensors first" : "");
}

/// weight_map of the index: tensor name -> file name inside the folder.
Expected<std::map<std::string, std::string>> read_index(const fs::path& path) {
  COHORT_ASSIGN(auto index, read_json_file(path));
  JsonObject root(index, fmt::format("'{}'", path.string()));
  COHORT_TRY(root.get_object("weight_map"));
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string()) {
      return fail(ErrorCode::corrupt, "'{}': the file of tensor '{}' has type {}; a string is needed", path.string(),
                  tensor.substr(0, 200), file.type_name());
    }
    auto name = file.get<std::string>();
    // A hostile index must not reach files elsewhere.
    if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos || name.find('\0') != name.npos) {
      return fail(ErrorCode::corrupt, "'{}': tensor '{}' lies in '{}'; only a plain file name is possible",
                  path.string(), tensor.substr(0, 200), name.substr(0, 200));
    }
    files.emplace(tensor, std::move(name));
  }
  if (files.empty()) return fail(ErrorCode::corrupt, "'{}': weight_map is empty", path.string());
  return files;
}

}  // namespace

const TensorInfo* Folder::find(std::string_view name) const {
  auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

Expected<void> Folder::add(const fs::path& path) {
  COHORT_ASSIGN(File file, File::open(path));
  std::string file_name = path.filename().string();
  for (TensorInfo& tensor : file.tensors_) {
    auto [place, inserted] = index_.emplace(tensor.name, tensors_.size());
    if (!inserted) {
      return fail(ErrorCode::corrupt, "tensor '{}' is in '{}' and in '{}'", tensor.name, file_of_[tensor.name],
                  file_name);
    }
    file_of_.emplace(tensor.name, file_name);
    tensors_.push_back(std::move(tensor));
  }
  file.tensors_.clear();
  file_bytes_ += file.file_bytes_;
  files_.push_back(std::move(file));
  return {};
}

Expected<Folder> Folder::open(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return fail(ErrorCode::not_found, "'{}' is no folder", directory.string());
  Folder folder;
  folder.path_ = directory;
  if (!file_exists(directory / kIndex)) {
    COHORT_ASSIGN(fs::path path, single_file(directory));
    COHORT_TRY(folder.add(path));
    return folder;
  }
  COHORT_ASSIGN(auto weight_map, read_index(directory / kIndex));
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  std::string missing;
  for (const std::string& name : names) {
    if (!file_exists(directory / name)) missing += (missing.empty() ? "" : ", ") + name;
  }
  if (!missing.empty()) {
    return fail(ErrorCode::not_found, "'{}' names {} files, of which these are missing: {}",
                (directory / kIndex).string(), names.size(), missing);
  }
  for (const std::string& name : names) COHORT_TRY(folder.add(directory / name));
  for (const auto& [tensor, file] : weight_map) {
    auto found = folder.file_of_.find(tensor);
    if (found == folder.file_of_.end() || found->second != file) {
      return fail(ErrorCode::corrupt, "'{}' says that tensor '{}' is in '{}', but it is {}",
                  (directory / kIndex).string(), tensor, file,
                  found == folder.file_of_.end() ? "in none of the files" : fmt::format("in '{}'", found->second));
    }
  }
  return folder;
}

}  // namespace cohort::safetensors
