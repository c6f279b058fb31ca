#include "text/template/text_tools.h"

#include <algorithm>
#include <cstring>

#include "text/template/unicode.h"

namespace cohort::jinja {
namespace {

bool contains_code_point(std::string_view text, char32_t wanted) {
  for (size_t position = 0; position < text.size();) {
    if (decode(text, position) == wanted) return true;
  }
  return false;
}

constexpr size_t kShort = 16;  // longer ones are not searched naively: their length would multiply the time

}  // namespace

size_t find_text(std::string_view text, std::string_view wanted, size_t from) {
  if (wanted.size() <= kShort || from > text.size()) return text.find(wanted, from);
  const void* found = ::memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_last_text(std::string_view text, std::string_view wanted) {
  if (wanted.size() <= kShort) return text.rfind(wanted);
  std::string backwards(text.rbegin(), text.rend()), wanted_backwards(wanted.rbegin(), wanted.rend());
  size_t found = find_text(backwards, wanted_backwards);
  return found == std::string_view::npos ? found : text.size() - found - wanted.size();
}

std::string replace_all(Runtime& runtime, std::string_view text, std::string_view old, std::string_view to, Int count) {
  runtime.spend_bytes(text.size());
  if (count < 0) count = Int{1} << 62;
  Text out(runtime);
  size_t position = 0;
  if (old.empty()) {  // before every character and at the end
    for (; count > 0; --count) {
      out.append(to);
      if (position >= text.size()) break;
      size_t begin = position;
      decode(text, position);
      out.append(text.substr(begin, position - begin));
    }
  } else {
    for (; count > 0; --count) {
      size_t found = find_text(text, old, position);
      if (found == std::string_view::npos) break;
      out.append(text.substr(position, found - position));
      out.append(to);
      position = found + old.size();
    }
  }
  out.append(text.substr(std::min(position, text.size())));
  return out.take();
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t position = 0; position < text.size();) {
    size_t line_end = position;
    char32_t c = decode(text, position);
    if (!is_line_break(c)) continue;
    if (c == '\r' && position < text.size() && text[position] == '\n') ++position;
    lines.push_back(text.substr(begin, (keep_ends ? position : line_end) - begin));
    begin = position;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string_view strip(std::string_view text, const std::string* chars, bool left, bool right) {
  auto removable = [&](char32_t c) { return chars == nullptr ? is_space(c) : contains_code_point(*chars, c); };
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    size_t next = begin;
    if (!removable(decode(text, next))) break;
    begin = next;
  }
  while (right && end > begin) {
    size_t before = end;
    if (!removable(decode_before(text, before))) break;
    end = before;
  }
  return text.substr(begin, end - begin);
}

std::string padded(Runtime& runtime, std::string_view text, Int left, Int right, std::string_view fill) {
  Text out(runtime);
  auto pad = [&](Int count) {
    if (count > (Int{1} << 40)) runtime.check_memory(size_t{1} << 40);
    if (count > 0 && fill.size() == 1) return out.append(static_cast<size_t>(count), fill[0]);
    for (; count > 0; --count) out.append(fill);
  };
  pad(left);
  out.append(text);
  pad(right);
  return out.take();
}

std::string centered(Runtime& runtime, std::string_view text, Int length, Int width, std::string_view fill) {
  Int margin = std::max<Int>(width - length, 0);
  Int left = margin / 2 + (margin & width & 1);
  return padded(runtime, text, left, margin - left, fill);
}

}  // namespace cohort::jinja
