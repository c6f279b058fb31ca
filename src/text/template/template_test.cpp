// What the fixtures cannot show: errors and their lines, limits, numbers beyond 64 bits, use from several threads.
#include "text/template/template.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace cohort {
namespace {

using Json = nlohmann::ordered_json;

Expected<std::string> render(const std::string& source, const Json& context = Json::object(),
                             const TemplateLimits& limits = {}) {
  auto parsed = Template::parse(source, limits);
  if (!parsed) return tl::unexpected(parsed.error());
  return parsed->render(context);
}

/// `text` many times, between `before` and `after`.
std::string repeated(std::string_view text, size_t count, std::string_view before = "", std::string_view after = "") {
  std::string out(before);
  for (size_t i = 0; i < count; ++i) out += text;
  return out.append(after);
}

/// Expects an error with this code whose message contains `words`.
void expect_error(const std::string& source, ErrorCode code, const std::string& words,
                  const TemplateLimits& limits = {}) {
  auto result = render(source, Json{{"d", {{"a", 1}}}, {"xs", {1, 2, 3}}}, limits);
  ASSERT_FALSE(result) << source << " gave " << *result;
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
}

TEST(Template, SyntaxErrorsNameTheLine) {
  expect_error("a\n{% if %}", ErrorCode::corrupt, "template line 2: expected an expression");
  expect_error("\n\n{{ 'open }}", ErrorCode::corrupt, "template line 3: ");
  expect_error("{% for x in xs %}\n\n", ErrorCode::corrupt, "'endfor' is missing to close 'for'");
  expect_error("{% if d %}\n{% nope %}", ErrorCode::corrupt,
               "line 2: unknown tag 'nope'; the innermost open tag is 'if'");
  expect_error("\n{{ d | nope }}", ErrorCode::corrupt, "line 2: no filter named 'nope'");
  expect_error("{{ \xC3 }}", ErrorCode::corrupt, "not valid UTF-8");
}

TEST(Template, UnsupportedFeaturesSaySo) {
  expect_error("{% include 'x' %}", ErrorCode::unsupported, "the tag 'include' is not supported");
  expect_error("{{ d | urlize }}", ErrorCode::unsupported, "the filter 'urlize' is not supported");
  expect_error("{{ 'a'.encode() }}", ErrorCode::unsupported, "encode");
}

TEST(Template, RunTimeErrorsNameTheLine) {
  expect_error("\n{{ missing.x }}", ErrorCode::invalid_argument, "template line 2: 'missing' is undefined");
  expect_error("{{ d.b.c }}", ErrorCode::invalid_argument, "'dict object' has no attribute 'b'");
  expect_error("{{ xs[5].c }}", ErrorCode::invalid_argument, "list object has no element 5");
  expect_error("{{ (1 if false).x }}", ErrorCode::invalid_argument,
               "the inline if-expression on line 1 evaluated to false");
  expect_error("{{ xs.append(1) }}", ErrorCode::invalid_argument,
               "access to attribute 'append' of 'list' object is unsafe");
  expect_error("{% macro m(a) %}\n{{ a.b }}\n{% endmacro %}\n{{ m() }}", ErrorCode::invalid_argument,
               "line 2: parameter 'a' was not provided");
  expect_error("a\n\n{{ raise_exception('Roles must alternate!') }}", ErrorCode::invalid_argument,
               "template line 3: Roles must alternate!");
}

TEST(Template, ContextMustBeAnObjectOfText) {
  auto parsed = Template::parse("{{ x }}");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->render(Json::array()).error().code, ErrorCode::invalid_argument);
  auto broken = parsed->render(Json{{"x", std::string("\xFF")}});
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(parsed->render(Json{{"unused", std::string("\xFF")}}).value(), "");
}

TEST(Template, IntegersReachBeyond64Bits) {
  EXPECT_EQ(render("{{ x }} {{ x + 1 }} {{ x * (x // 4) }}", Json{{"x", UINT64_MAX}}).value(),
            "18446744073709551615 18446744073709551616 85070591730234615842785221765805113345");
  EXPECT_EQ(render("{{ x }} {{ -x }} {{ x // 3 }}", Json{{"x", INT64_MIN}}).value(),
            "-9223372036854775808 9223372036854775808 -3074457345618258603");
  expect_error("{{ 2 ** 127 }}", ErrorCode::capacity, "128 bits");
  expect_error("{{ (2 ** 126) * 2 - 1 + 2 ** 126 }}", ErrorCode::capacity, "128 bits");
  expect_error("{{ 99999999999999999999999999999999999999999 }}", ErrorCode::capacity, "128 bits");
}

TEST(TemplateLimits, BoundTheSource) {
  TemplateLimits limits;
  limits.source_bytes = 4;
  expect_error("12345", ErrorCode::capacity, "more than the limit 'source_bytes' of 4", limits);
  EXPECT_EQ(render("1234", Json::object(), limits).value(), "1234");
}

TEST(TemplateLimits, BoundNesting) {
  for (const char* open : {"(", "[", "not ", "-", "1 if 1 else ", "{1: "}) {
    expect_error(repeated(open, 50'000, "{{ "), ErrorCode::capacity, "'syntax_depth' of 200");
  }
  for (const char* link : {" + 1", ".a", "[0]", "()", "|upper", " and 1", "[:]", " ** 1"}) {
    expect_error(repeated(link, 50'000, "{{ x", " }}"), ErrorCode::capacity, "'syntax_depth' of 200");
  }
  expect_error(repeated("{% if 1 %}", 50'000), ErrorCode::capacity, "'syntax_depth' of 200");
  EXPECT_EQ(render(repeated(" + 1", 150, "{{ 0", " }}")).value(), "150");
  EXPECT_EQ(render(repeated("{% endif %}", 150, repeated("{% if 1 %}", 150, "", "x"))).value(), "x");
  EXPECT_EQ(render(repeated(" ~ 1", 2000, "{{ 1", " }}")).value(), repeated("1", 2001));
}

TEST(TemplateLimits, BoundRecursion) {
  expect_error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ErrorCode::capacity, "the limit 'depth' of 1000");
  EXPECT_EQ(render("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}x").value(), "x");
  // Values that nest deeper and deeper, which would otherwise exhaust the stack when they are printed or freed.
  const std::string loop = "{% set ns = namespace(v=[]) %}{% for i in range(100000) %}{% set ns.v = ";
  for (const char* nested : {"[ns.v]", "{'a': ns.v}", "(ns.v, 1)", "ns.v | map('upper')", "[1] | select('in', ns.v)",
                             "ns.v | batch(2)", "cycler(ns.v)"}) {
    expect_error(fmt::format("{}{} %}}{{% endfor %}}", loop, nested), ErrorCode::capacity, "'value_depth' of 200");
  }
  expect_error(
      "{% set ns = namespace() %}{% for i in range(1000) %}{% set ns.v = namespace(v=ns.v) %}{% endfor %}{{ ns }}",
      ErrorCode::capacity, "'depth' of 1000");
  EXPECT_EQ(render("{{ x }}", Json::parse(repeated("]", 150, repeated("[", 150, "{\"x\": "), "}"))).value(),
            repeated("]", 150, repeated("[", 150)));
  auto deep = render("{{ x }}", Json::parse(repeated("]", 5000, repeated("[", 5000, "{\"x\": "), "}")));
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error().code, ErrorCode::capacity);
}

TEST(TemplateLimits, BoundTime) {
  const std::string endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
  expect_error(endless, ErrorCode::capacity, "more than 50000000 steps");
  TemplateLimits limits;
  limits.steps = 1'000'000;
  const std::string doubled =
      "{% set ns = namespace(v='a') %}{% for i in range(20) %}{% set ns.v = ns.v ~ ns.v %}{% endfor %}";
  for (const char* work :
       {"ns.v.upper()", "ns.v | title", "ns.v.count('b')", "'b' in ns.v", "ns.v == ns.v ~ ''", "ns.v | wordcount",
        "ns.v.split('b')", "ns.v[::-1]", "ns.v | tojson", "ns.v.find('b')", "ns.v.isalpha()"}) {
    expect_error(fmt::format("{}{{% for i in range(99999) %}}{{% set x = {} %}}{{% endfor %}}", doubled, work),
                 ErrorCode::capacity, "more than 1000000 steps", limits);
  }
  // Searches that are slow when done naively.
  const std::string hostile = "{% set a = 'a' * 200000 %}{% set b = 'a' * 100000 ~ 'b' %}";
  for (const char* work : {"b in a", "a.find(b)", "a.rfind('b' ~ b)", "a.count(b)", "a.split(b)", "a.rsplit('b' ~ b)",
                           "a.replace(b, '')", "a.partition(b)"}) {
    EXPECT_TRUE(render(hostile + fmt::format("{{% set x = {} %}}", work))) << work;
  }
  // A value that contains itself many times over is small, but not to be walked.
  const std::string shared =
      "{% set ns = namespace(v=[1]) %}{% for i in range(60) %}{% set ns.v = [ns.v, ns.v] %}{% endfor %}";
  expect_error(shared + "{{ ns.v }}", ErrorCode::capacity, "limit", limits);
  expect_error(shared + "{{ ns.v | tojson }}", ErrorCode::capacity, "limit", limits);
  const std::string twins =
      "{% set ns = namespace(v=(1,), w=(1,)) %}{% for i in range(60) %}{% set ns.v = (ns.v, ns.v) %}"
      "{% set ns.w = (ns.w, ns.w) %}{% endfor %}";
  expect_error(twins + "{{ ns.v == ns.w }}", ErrorCode::capacity, "steps", limits);
  expect_error(twins + "{{ ns.v < ns.w }}", ErrorCode::capacity, "steps", limits);
  expect_error(twins + "{{ {ns.v: 1} }}", ErrorCode::capacity, "steps", limits);
}

TEST(TemplateLimits, BoundMemory) {
  TemplateLimits limits;
  limits.memory_bytes = 1'000'000;
  for (const char* work :
       {"'a' * 10 ** 9", "[1] * 10 ** 9", "'a' * 10 ** 30", "'%1000000000d' % 1", "'{:1000000000}'.format(1)",
        "'a'.ljust(10 ** 9)", "'a' | center(10 ** 12)", "'a\nb' | indent(10 ** 9)", "'7'.zfill(10 ** 9)",
        "[1, 2] | tojson(indent=10 ** 9)", "range(99999) | list", "[1] | batch(10 ** 9, 0) | list",
        "('a' * 500000) | list", "('a' * 500000).replace('', 'bcd')", "('a' * 500000) ~ ('a' * 500000)",
        "range(10) | slice(10 ** 9) | list", "'a'.center(10 ** 9, 'é')"}) {
    expect_error(fmt::format("{{% set x = {} %}}", work), ErrorCode::capacity, "limit 'memory_bytes'", limits);
  }
  // What is dropped is given back.
  EXPECT_TRUE(render("{% for i in range(1000) %}{% set x = 'a' * 100000 %}{% endfor %}ok", Json::object(), limits));
  expect_error("{% for a in range(10) %}{{ 'a' * 1000 }}{% endfor %}", ErrorCode::capacity, "'output_bytes' of 5000",
               TemplateLimits{.output_bytes = 5000});
}

TEST(Template, BreaksCycles) {
  // Leaks would be found by the address sanitizer.
  EXPECT_TRUE(render("{% set ns = namespace() %}{% set ns.ns = ns %}{% set ns.l = [ns] %}"));
  EXPECT_TRUE(render("{% set ns = namespace() %}{% macro f() %}{{ ns }}{% endmacro %}{% set ns.f = f %}"));
  EXPECT_TRUE(render("{% macro f() %}{% macro g() %}{% endmacro %}{% set x = g %}{% endmacro %}{{ f() }}"));
  EXPECT_TRUE(render("{% for x in [1, 2] %}{{ loop.changed([loop]) }}{% endfor %}"));
  EXPECT_FALSE(render("{% for x in [1, 2] if x %}{{ loop.changed(loop) }}{{ x.y.z }}{% endfor %}"));
}

TEST(Template, ClockIsTheCallers) {
  auto parsed = Template::parse("{{ strftime_now('%Y-%m-%d') }}");
  ASSERT_TRUE(parsed);
  auto clock = []() {
    std::tm time{};
    time.tm_year = 99, time.tm_mon = 11, time.tm_mday = 31;
    return time;
  };
  EXPECT_EQ(parsed->render(Json::object(), clock).value(), "1999-12-31");
  EXPECT_EQ(parsed->render(Json::object()).value().size(), 10u);
}

TEST(Template, RendersInSeveralThreadsAtOnce) {
  auto parsed = Template::parse(
      "{% macro m(x) %}<{{ x }}>{% endmacro %}{% for x in xs %}{{ m(x ~ 'ab'[::-1]) }}{% endfor %}{{ [1, 'a'] }}");
  ASSERT_TRUE(parsed);
  std::vector<std::thread> threads;
  std::vector<std::string> results(8);
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i]() {
      for (int round = 0; round < 200; ++round) results[i] = parsed->render(Json{{"xs", {i, i + 1}}}).value();
    });
  }
  for (auto& thread : threads) thread.join();
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i], fmt::format("<{}ba><{}ba>[1, 'a']", i, i + 1));
  }
}

}  // namespace
}  // namespace cohort
