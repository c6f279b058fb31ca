// Small tokenizer.json files for the tests.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {

/// A byte-level BPE with the 256 bytes (id = byte), a few merges ("he", "ll", "Ġw" ...), two added tokens and no
/// pattern.
inline nlohmann::json byte_level_file() {
  nlohmann::json file = {
      {"version", "1.0"},
      {"added_tokens",
       {{{"id", 300}, {"content", "<|end|>"}, {"special", true}},
        {{"id", 301}, {"content", "<tool>"}, {"special", false}, {"normalized", false}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", nlohmann::json::object()}, {"merges", nlohmann::json::array()}}},
  };
  auto& vocab = file["model"]["vocab"];
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    append_utf8(text, byte_to_char(static_cast<unsigned char>(byte)));
    vocab[text] = byte;
  }
  int next = 256;
  for (const auto& [left, right] : {std::pair("h", "e"), {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {"\u0120", "w"}}) {
    vocab[std::string(left) + right] = next++;
    file["model"]["merges"].push_back({left, right});
  }
  return file;
}

/// A SentencePiece-like BPE over characters with all byte tokens (id = byte + 3), U+2581 and letters.
inline nlohmann::json space_file() {
  nlohmann::json file = {
      {"added_tokens",
       {{{"id", 0}, {"content", "<unk>"}, {"special", true}},
        {{"id", 1}, {"content", "<s>"}, {"special", true}},
        {{"id", 2}, {"content", "</s>"}, {"special", true}}}},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", "\u2581"}},
          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"merges", nlohmann::json::array({"\u2581 a"})}}},
  };
  auto& vocab = file["model"]["vocab"];
  vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) {
    vocab[fmt::format("<0x{:02X}>", byte)] = byte + 3;
  }
  int next = 259;
  for (const char* token : {"\u2581", "a", "b", "\u2581a"}) {
    vocab[token] = next++;
  }
  return file;
}

}  // namespace cohort::text
