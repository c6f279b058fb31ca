// What a grammar costs for each token: the mask of allowed tokens, and the step past the token that was chosen. Walks
// through random texts of a grammar; the first walk makes what the later ones find in the cache.
//
// usage: bench_grammar MODEL.gguf [TOKENS] [WALKS]
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/rng.h"
#include "models/model.h"
#include "server/constraints.h"
#include "text/text_model.h"

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

struct Times {
  std::vector<double> mask, advance;  // microseconds
};

double microseconds(Clock::time_point from) {
  return std::chrono::duration<double, std::micro>(Clock::now() - from).count();
}

/// One random text of at most `tokens` tokens; every allowed token is as likely as any other.
Expected<void> walk(const Constraint& constraint, size_t vocabulary, int tokens, uint64_t seed, Times& times) {
  const auto state = constraint.begin();
  std::vector<uint64_t> mask((vocabulary + 63) / 64);
  for (int i = 0; i < tokens && !state->must_end(); ++i) {
    auto start = Clock::now();
    if (auto made = state->allowed(mask); !made) return made;
    times.mask.push_back(microseconds(start));
    int64_t count = 0;
    for (const uint64_t word : mask) count += std::popcount(word);
    if (count == 0) break;
    auto wanted = static_cast<int64_t>(uniform(seed, static_cast<uint32_t>(i), 0, 0) * static_cast<float>(count));
    int32_t token = 0;
    for (size_t t = 0; t < vocabulary; ++t) {
      if ((mask[t / 64] >> (t % 64) & 1) != 0 && wanted-- == 0) token = static_cast<int32_t>(t);
    }
    start = Clock::now();
    state->advance(token);
    times.advance.push_back(microseconds(start));
  }
  return {};
}

std::string shown(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](double q) { return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))]; };
  return fmt::format("{:8.1f} {:8.1f} {:8.1f}", at(0.5), at(0.99), values.back());
}

int run(int argc, char** argv) {
  const int tokens = argc > 2 ? std::atoi(argv[2]) : 200, walks = argc > 3 ? std::atoi(argv[3]) : 20;
  auto model = argc > 1 ? Model::load(argv[1], 0)
                        : Expected<std::unique_ptr<Model>>(
                              tl::unexpected(Error{ErrorCode::invalid_argument, "usage: bench_grammar MODEL.gguf"}));
  if (!model) return fmt::print(stderr, "{}\n", model.error().message), 1;
  auto text = load_text_model(**model);
  if (!text) return fmt::print(stderr, "{}\n", text.error().message), 1;
  server::Constraints constraints(text->tokenizer);
  const auto schema = [&](const char* json) {
    return constraints.of_schema(nlohmann::ordered_json::parse(json), false);
  };
  const struct {
    const char* name;
    server::Constraints::Result constraint;
  } cases[] = {
      {"json_object", constraints.of_json_object(false)},
      {"schema: name, age, e-mail",
       schema(R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,
         "maximum":150},"mail":{"type":"string","format":"email"}},"required":["name","age","mail"]})")},
      {"schema: recursive tree",
       schema(R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":"number"},"c":{"type":"array",
         "items":{"$ref":"#/$defs/n"}}},"required":["v","c"]}},"$ref":"#/$defs/n"})")},
      {"GBNF: lines of words", constraints.of_grammar("root ::= ([a-z]+ \" \"?){1,40} (\"\\n\" root)?")},
  };
  fmt::print("{} tokens; microseconds: p50, p99, most\n{:28} {:>26} {:>26} {:>26}\n", text->tokenizer.vocab_size(), "",
             "mask, first text", "mask, later texts", "step past a token");
  for (const auto& c : cases) {
    if (!c.constraint) return fmt::print(stderr, "{}\n", c.constraint.error().message), 1;
    Times first, later;
    for (int i = 0; i < walks; ++i) {
      if (auto ok = walk(**c.constraint, text->tokenizer.vocab_size(), tokens, static_cast<uint64_t>(i),
                         i == 0 ? first : later);
          !ok) {
        return fmt::print(stderr, "{}\n", ok.error().message), 1;
      }
    }
    fmt::print("{:28} {} {} {}\n", c.name, shown(first.mask), shown(later.mask), shown(later.advance));
  }
  return 0;
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  return cohort::run(argc, argv);
}
