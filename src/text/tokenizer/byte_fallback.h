// The tokens <0x00> ... <0xFF>, which stand for bytes that a vocabulary of characters does not know.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace cohort::text {

/// The byte that a token text of the form <0xNN> stands for (either case of the digits), or -1.
int byte_of_token(std::string_view text);

class ByteFallback {
 public:
  ByteFallback() { ids_.fill(-1); }
  explicit ByteFallback(const Vocabulary& vocabulary);

  /// Appends one id for each byte; false, and nothing appended, if a byte has no token.
  bool append(std::string_view bytes, std::vector<int32_t>& out) const;
  bool complete() const;

 private:
  std::array<int32_t, 256> ids_{};
};

}  // namespace cohort::text
