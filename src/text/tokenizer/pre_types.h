// The pre-tokenizers that GGUF files name in tokenizer.ggml.pre.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::text {

struct PreType {
  std::vector<std::string_view> names;     // the first one is the family's own
  std::vector<std::string_view> patterns;  // applied one after the other, matches isolated
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  // where the file does not say
  bool falcon = false;   // Falcon's sequence: the patterns, with other cuts before and between (from_gguf.cpp)
  bool sentencepiece_bpe = false;  // characters instead of bytes, U+2581 for spaces
};

std::span<const PreType> pre_types();

/// Null if no family has the name.
const PreType* find_pre_type(std::string_view name);

/// All names, sorted, with commas.
std::string known_pre_names();

}  // namespace cohort::text
