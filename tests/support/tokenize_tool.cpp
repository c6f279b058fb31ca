// Encodes and decodes what comes on standard input, for tools/tokenizer_compare.py:
//   tokenize_tool PATH       PATH as for load_tokenizer
// Input, repeated: u32 flags (1 add_special, 2 parse_special, 4 skip_special when decoding), u32 bytes, the text; or
// u32 flags with bit 8 set (decode), u32 count, the i32 ids. Output for each: u32 status (0 fine, 1 error), f64
// seconds, u32 count, i32 ids (none for decode), u32 bytes, the decoded text or the message.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "text/tokenizer/load.h"

namespace {

bool read_exactly(void* data, size_t size) {
  return size == 0 || std::fread(data, 1, size, stdin) == size;
}

void write_exactly(const void* data, size_t size) {
  std::fwrite(data, 1, size, stdout);
}

void write_number(uint32_t value) {
  write_exactly(&value, sizeof(value));
}

void answer(uint32_t status, double seconds, const std::vector<int32_t>& ids, const std::string& text) {
  write_number(status);
  write_exactly(&seconds, sizeof(seconds));
  write_number(static_cast<uint32_t>(ids.size()));
  write_exactly(ids.data(), ids.size() * sizeof(int32_t));
  write_number(static_cast<uint32_t>(text.size()));
  write_exactly(text.data(), text.size());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace cohort;
  using Clock = std::chrono::steady_clock;
  if (argc != 2) {
    std::fprintf(stderr, "usage: tokenize_tool PATH\n");
    return 2;
  }
  const auto start = Clock::now();
  const auto tokenizer = text::load_tokenizer(argv[1]);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  std::fprintf(stderr, "%s, loaded in %.3f s\n", tokenizer->description().c_str(),
               std::chrono::duration<double>(Clock::now() - start).count());
  uint32_t header[2];
  while (read_exactly(header, sizeof(header))) {
    const auto [flags, size] = header;
    const bool skip_special = (flags & 4) != 0;
    if ((flags & 8) != 0) {
      std::vector<int32_t> ids(size);
      if (!read_exactly(ids.data(), ids.size() * sizeof(int32_t))) {
        return 1;
      }
      const auto text = tokenizer->decode(ids, skip_special);
      answer(text ? 0 : 1, 0, {}, text ? *text : text.error().message);
      continue;
    }
    std::string text(size, '\0');
    if (!read_exactly(text.data(), text.size())) {
      return 1;
    }
    const auto begin = Clock::now();
    const auto ids = tokenizer->encode(text, {.add_special = (flags & 1) != 0, .parse_special = (flags & 2) != 0});
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (!ids) {
      answer(1, seconds, {}, ids.error().message);
      continue;
    }
    const auto decoded = tokenizer->decode(*ids, skip_special);
    answer(decoded ? 0 : 1, seconds, *ids, decoded ? *decoded : decoded.error().message);
  }
  return 0;
}
