#include "text/tokenizer/utf8.h"

#include <cstring>

namespace cohort::text {

Utf8Char decode_utf8(std::string_view text) {
  if (text.empty()) {
    return {};
  }
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1, true, false};
  }
  // The allowed range of the second byte excludes overlong forms, surrogates and values above U+10FFFF (Unicode table
  // 3-7).
  uint32_t size = 0;
  unsigned char low = 0x80, high = 0xBF;
  char32_t value = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    size = 2;
    value = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    size = 3;
    value = lead & 0x0F;
    low = lead == 0xE0 ? 0xA0 : low;
    high = lead == 0xED ? 0x9F : high;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    size = 4;
    value = lead & 0x07;
    low = lead == 0xF0 ? 0x90 : low;
    high = lead == 0xF4 ? 0x8F : high;
  } else {
    return {kReplacementCharacter, 1, false, false};
  }
  for (uint32_t i = 1; i < size; ++i) {
    if (i == text.size()) {
      return {kReplacementCharacter, i, false, true};
    }
    if (byte(i) < low || byte(i) > high) {
      return {kReplacementCharacter, i, false, false};
    }
    value = (value << 6) | (byte(i) & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {value, size, true, false};
}

char32_t last_utf8_char(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) {
    --start;
  }
  uint32_t size = 0;
  return decode_valid_utf8(text.data() + start, size);
}

void append_utf8(std::string& out, char32_t value) {
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    value = kReplacementCharacter;
  }
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | (value >> 6));
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | (value >> 12));
    put(0x80 | ((value >> 6) & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | (value >> 18));
    put(0x80 | ((value >> 12) & 0x3F));
    put(0x80 | ((value >> 6) & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

namespace {

/// Bytes at the start of `text` that are ASCII, eight at a time.
size_t ascii_prefix(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080ull) != 0) {
      break;
    }
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) {
    ++i;
  }
  return i;
}

/// Bytes at the start of `text` that are valid UTF-8.
size_t valid_prefix(std::string_view text) {
  size_t i = 0;
  while (true) {
    i += ascii_prefix(text.substr(i));
    if (i == text.size()) {
      return i;
    }
    const Utf8Char c = decode_utf8(text.substr(i));
    if (!c.valid) {
      return i;
    }
    i += c.size;
  }
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  return valid_prefix(text) == text.size();
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Utf8Stream stream;
  stream.push(text, out);
  stream.finish(out);
  return out;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  // Complete (or refute) the unfinished character byte by byte; it has at most three bytes.
  while (pending_size_ > 0 && !bytes.empty()) {
    pending_[pending_size_] = bytes.front();
    const Utf8Char c = decode_utf8({pending_, pending_size_ + 1});
    if (c.truncated) {
      ++pending_size_;
      bytes.remove_prefix(1);
    } else if (c.valid) {
      out.append(pending_, c.size);
      pending_size_ = 0;
      bytes.remove_prefix(1);
    } else {  // the new byte does not continue it: it starts something else
      out.append(kReplacementUtf8);
      pending_size_ = 0;
    }
  }
  while (!bytes.empty()) {
    const size_t valid = valid_prefix(bytes);
    out.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) {
      return;
    }
    const Utf8Char c = decode_utf8(bytes);
    if (c.truncated) {
      std::memcpy(pending_, bytes.data(), bytes.size());
      pending_size_ = static_cast<uint32_t>(bytes.size());
      return;
    }
    out.append(kReplacementUtf8);
    bytes.remove_prefix(c.size);
  }
}

void Utf8Stream::finish(std::string& out) {
  if (pending_size_ > 0) {
    out.append(kReplacementUtf8);
    pending_size_ = 0;
  }
}

}  // namespace cohort::text
