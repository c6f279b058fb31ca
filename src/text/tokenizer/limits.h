// What a tokenizer may cost. Far above every published tokenizer; a file that asks for more is refused, not tried.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::text {

struct TokenizerLimits {
  size_t json_bytes = size_t{256} << 20;     // tokenizer.json; the largest published ones have about 33 MB
  size_t json_depth = 64;                    // nesting
  size_t json_values = 4 << 20;              // values outside of the vocabulary and the merges
  size_t tokens = size_t{4} << 20;           // ids, gaps included; published vocabularies end at about 262,144
  size_t token_bytes = 4096;                 // of one token
  size_t merges = size_t{8} << 20;           // the largest published list has 514,906
  size_t steps = 64;                         // normalizers, pre-tokenizers or decoders in one sequence
  size_t pattern_bytes = 16384;              // of one regular expression
  size_t text_bytes = size_t{64} << 20;      // of one encode() call, before and after each normalizer
  size_t word_bytes = size_t{8} << 20;       // of one piece that the model cannot cut further
  uint32_t pattern_steps = 10'000'000;       // backtracking steps of one match
  uint32_t pattern_kilobytes = 256 << 10;    // memory of one match
  double pattern_seconds = 20.0;             // time of all matches of one encode() call, plus:
  double pattern_seconds_per_megabyte = 20;  // (ordinary patterns take about 0.1 s)
};

}  // namespace cohort::text
