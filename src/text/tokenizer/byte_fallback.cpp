#include "text/tokenizer/byte_fallback.h"

#include <fmt/format.h>

#include <algorithm>

namespace cohort::text {

int byte_of_token(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text.back() != '>') {
    return -1;
  }
  int byte = 0;
  for (const char c : text.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    const bool upper = c >= 'A' && c <= 'F', lower = c >= 'a' && c <= 'f';
    if (!digit && !upper && !lower) {
      return -1;
    }
    byte = byte * 16 + (digit ? c - '0' : upper ? c - 'A' + 10 : c - 'a' + 10);
  }
  return byte;
}

ByteFallback::ByteFallback(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    ids_[static_cast<size_t>(byte)] = vocabulary.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
}

bool ByteFallback::append(std::string_view bytes, std::vector<int32_t>& out) const {
  for (const char byte : bytes) {
    if (ids_[static_cast<unsigned char>(byte)] < 0) {
      return false;
    }
  }
  for (const char byte : bytes) {
    out.push_back(ids_[static_cast<unsigned char>(byte)]);
  }
  return true;
}

bool ByteFallback::complete() const {
  return std::all_of(ids_.begin(), ids_.end(), [](int32_t id) { return id >= 0; });
}

}  // namespace cohort::text
