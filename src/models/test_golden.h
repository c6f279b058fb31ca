// What the tests of configurations share: the golden models' files, and errors that must say something.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/test_folder.h"
#include "cohort/error.h"
#include "formats/gguf/gguf.h"
#include "models/config.h"

namespace cohort {

inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(COHORT_SOURCE_DIR) / "tests/golden" / name;
}

inline nlohmann::json golden_config(const std::string& model) {
  auto config = read_json_file(golden("models/" + model + "/config.json"));
  EXPECT_TRUE(config) << config.error().message;
  return *config;
}

/// What a golden file's metadata says with another value of `key`; without a value the key is missing.
inline Expected<ModelConfig> config_of_gguf_with(const std::string& name, const std::string& key,
                                                 const std::optional<gguf::Value>& value) {
  const auto file = gguf::File::open(golden(name));
  EXPECT_TRUE(file);
  gguf::Metadata out;
  for (const gguf::Metadata::Entry& entry : file->metadata().entries()) {
    if (entry.first == key) continue;
    EXPECT_TRUE(out.add(entry.first, entry.second));
  }
  if (value) {
    EXPECT_TRUE(out.add(key, *value));
  }
  return config_from_gguf(out);
}

/// Another value of a key, one tensor less, or another first value of one of f32.
struct GgufChange {
  std::string key = {}, without = {}, tensor = {};
  std::optional<gguf::Value> value = {};
  float first = 0;
};

/// A golden file with that change, in `folder`.
inline std::filesystem::path changed_gguf(const TestFolder& folder, const std::string& name, const GgufChange& change) {
  const auto file = gguf::File::open(golden(name));
  auto out = gguf::Writer::create(folder / "changed.gguf");
  EXPECT_TRUE(file && out);
  for (const gguf::Metadata::Entry& entry : file->metadata().entries()) {
    const bool other = change.value && entry.first == change.key;
    EXPECT_TRUE(out->metadata().add(entry.first, other ? *change.value : entry.second));
  }
  for (const gguf::TensorInfo& tensor : file->tensors()) {
    if (tensor.name == change.without) continue;
    EXPECT_TRUE(out->add_tensor(tensor.name, tensor.type, tensor.shape));
  }
  EXPECT_TRUE(out->begin_data());
  for (const gguf::TensorInfo& tensor : file->tensors()) {
    if (tensor.name == change.without) continue;
    std::vector<std::byte> bytes(tensor.data, tensor.data + tensor.bytes);
    if (tensor.name == change.tensor) std::memcpy(bytes.data(), &change.first, sizeof(float));
    EXPECT_TRUE(out->write(bytes));
  }
  EXPECT_TRUE(out->commit());
  return folder / "changed.gguf";
}

template <class T>
void expect_message(const Expected<T>& result, std::string_view part) {
  ASSERT_FALSE(result) << part;
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
}

}  // namespace cohort
