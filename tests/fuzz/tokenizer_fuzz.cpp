// Feeds arbitrary bytes as tokenizer.json; with what loads, encodes and decodes. Input: the file, then optionally a
// NUL, a byte of options and a text (which may be anything). Without a NUL, the file itself is the text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/tokenizer/tokenizer.h"

namespace {

using namespace cohort;

void require(bool condition) {
  if (!condition) {
    __builtin_trap();
  }
}

/// Small enough that no input takes long, large enough for the seeds.
text::TokenizerLimits limits() {
  text::TokenizerLimits limits;
  limits.json_bytes = 1 << 16;
  limits.json_values = 20000;
  limits.tokens = 5000;
  limits.token_bytes = 256;
  limits.merges = 5000;
  limits.steps = 16;
  limits.pattern_bytes = 1024;
  limits.text_bytes = 1 << 14;
  limits.pattern_steps = 100000;
  limits.pattern_kilobytes = 16 << 10;
  limits.pattern_seconds = 1;
  return limits;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view file = input.substr(0, end);
  std::string_view rest = end == std::string_view::npos ? file : input.substr(end + 1);
  const auto options = rest.empty() ? 0 : static_cast<unsigned char>(rest.front());
  rest = rest.substr(rest.empty() ? 0 : 1, 4096);
  const auto tokenizer = text::Tokenizer::from_huggingface(file, limits());
  if (!tokenizer) {
    require(!tokenizer.error().message.empty());
    return 0;
  }
  const auto ids = tokenizer->encode(rest, {.add_special = (options & 1) != 0, .parse_special = (options & 2) != 0});
  if (!ids) {
    require(!ids.error().message.empty());
    return 0;
  }
  const bool skip_special = (options & 4) != 0;
  text::Detokenizer detokenizer(*tokenizer, {.skip_special = skip_special});
  std::string streamed;
  for (const int32_t id : *ids) {
    require(id >= 0 && static_cast<size_t>(id) < tokenizer->vocab_size());
    streamed += detokenizer.push(id);
    require(text::is_valid_utf8(streamed));
  }
  streamed += detokenizer.finish();
  const auto decoded = tokenizer->decode(*ids, skip_special);
  require(decoded && *decoded == streamed);
  return 0;
}
