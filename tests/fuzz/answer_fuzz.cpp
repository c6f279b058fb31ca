// Answers of models: any text, cut anywhere, in every format of calls. The parts do not depend on the cuts, and text
// without any marker stays as it is.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/openai/answer_parser.h"

namespace {

using namespace cohort::server;

std::string parse(const AnswerSyntax& syntax, std::string_view text, size_t piece, bool cut) {
  AnswerParser parser(syntax);
  std::string out;
  int last = -1;
  const auto add = [&](const std::vector<AnswerPart>& parts) {
    for (const AnswerPart& part : parts) {
      const int kind = static_cast<int>(part.kind);
      if (kind != last || part.kind == AnswerPart::Kind::call) out.append("|").append(std::to_string(kind)).append(":");
      out += part.text;
      last = kind;
    }
  };
  while (!text.empty()) {
    add(parser.push(text.substr(0, piece)));
    text.remove_prefix(std::min(piece, text.size()));
  }
  add(parser.finish(cut));
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (const ToolFormat format : {ToolFormat::none, ToolFormat::hermes, ToolFormat::mistral, ToolFormat::llama}) {
    const AnswerSyntax syntax{(data[0] & 1) != 0, (data[0] & 3) == 3, format, {"f"}};
    for (const bool cut : {false, true}) {
      const std::string whole = parse(syntax, text, text.size() + 1, cut);
      for (const size_t piece : {1, 3}) {
        if (parse(syntax, text, piece, cut) != whole) std::abort();
      }
    }
  }
  return 0;
}
