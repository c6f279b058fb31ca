// Grammars and schemas: bytes -> GBNF or JSON Schema -> masks over a small vocabulary. What compiles never leads into a
// dead end, and every token that is allowed can be taken.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/json_schema.h"
#include "text/grammar/token_grammar.h"

namespace {

using namespace cohort;

std::shared_ptr<const grammar::TokenTrie> make_vocabulary() {
  std::vector<std::string> pieces;
  for (int b = 0; b < 256; ++b) pieces.emplace_back(1, static_cast<char>(b));
  for (const char* more : {"\",", "\": ", "{\"", "}}", "true", "ab", "12", "aaaa"}) pieces.emplace_back(more);
  const std::vector<std::string_view> views(pieces.begin(), pieces.end());
  return std::make_shared<const grammar::TokenTrie>(views);
}

void walk(const grammar::Grammar& grammar, const uint8_t* data, size_t size) {
  static const auto vocabulary = make_vocabulary();
  const auto compiled = grammar::TokenGrammar::create(grammar, vocabulary, {});
  if (!compiled) {
    if (compiled.error().message.empty()) std::abort();
    return;
  }
  const auto state = (*compiled)->begin();
  std::vector<uint64_t> mask((vocabulary->vocabulary() + 63) / 64);
  for (size_t i = 0; i < size && i < 24 && !state->must_end(); ++i) {
    if (!state->allowed(mask)) return;  // too ambiguous
    std::vector<int32_t> choices;
    for (size_t t = 0; t < vocabulary->vocabulary(); ++t) {
      if ((mask[t / 64] >> (t % 64) & 1) != 0) choices.push_back(static_cast<int32_t>(t));
    }
    if (choices.empty()) std::abort();
    state->advance(choices[data[i] % choices.size()]);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    const auto parsed = grammar::parse_gbnf(text, {});
    if (parsed) walk(*parsed, data, size);
    return 0;
  }
  if (!parse_json(text, "schema")) return 0;
  const auto parsed = grammar::grammar_of_schema(nlohmann::ordered_json::parse(text), "schema");
  if (parsed) walk(*parsed, data, size);
  return 0;
}
