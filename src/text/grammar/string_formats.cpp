#include "text/grammar/string_formats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace cohort::grammar {
namespace {

// RFC 3339. Every month has its days, and February its 29th in leap years.
constexpr std::string_view kLeapYear = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[048]|[2468][048]|[13579][26])00)";
constexpr std::string_view kMonthAndDay =
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))";
// No leap second: whether there is one is decided half a year before it. Nine digits are nanoseconds.
constexpr std::string_view kClock = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?";
constexpr std::string_view kOffset = "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";

std::string date() {
  return fmt::format("([0-9]{{4}}-{}|{}-02-29)", kMonthAndDay, kLeapYear);
}

/// RFC 3339, appendix A; no number of more than nine digits.
std::string duration() {
  constexpr std::string_view kNumber = "[0-9]{1,9}";
  const std::string seconds = fmt::format("{}S", kNumber);
  const std::string minutes = fmt::format("{}M({})?", kNumber, seconds);
  const std::string time = fmt::format("T({}H({})?|{}|{})", kNumber, minutes, minutes, seconds);
  const std::string months = fmt::format("{0}M({0}D)?", kNumber);
  const std::string dates = fmt::format("({0}Y({1})?|{1}|{0}D)", kNumber, months);
  return fmt::format("P({}({})?|{}|{}W)", dates, time, time, kNumber);
}

constexpr std::string_view kByte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";

std::string ipv4() {
  return fmt::format("({0}\\.){{3}}{0}", kByte);
}

/// RFC 4291, 2.2: eight groups, or fewer with one "::"; the last two may be written as an IPv4 address.
std::string ipv6() {
  constexpr std::string_view kGroup = "[0-9A-Fa-f]{1,4}";
  constexpr int kGroups = 8;
  const std::string tail = fmt::format("({0}:{0}|{1})", kGroup, ipv4());
  std::string out = fmt::format("({0}:){{6}}{1}", kGroup, tail);
  // `before` groups, "::", and at most so many behind that at least one is left out.
  for (int before = 0; before < kGroups; ++before) {
    const std::string begin = before == 0 ? ":" : fmt::format("({}:){{{}}}", kGroup, before);
    const int behind = kGroups - 1 - before;
    std::string end;
    if (behind >= 2) {
      end = fmt::format("(({0}:){{0,{1}}}{2}|{0})?", kGroup, behind - 2, tail);
    } else if (behind == 1) {
      end = fmt::format("({})?", kGroup);
    }
    out += fmt::format("|{}:{}", begin, end);
  }
  return fmt::format("({})", out);
}

/// RFC 1123, up to six labels of up to 40 characters, so that no name has more than 253.
constexpr std::string_view kHostname =
    "[A-Za-z0-9]([A-Za-z0-9-]{0,38}[A-Za-z0-9])?(\\.[A-Za-z0-9]([A-Za-z0-9-]{0,38}[A-Za-z0-9])?){0,5}";
/// RFC 5321: no quoted part before the @, which has no more than 64 characters.
constexpr std::string_view kEmail =
    "[A-Za-z0-9_+'-]{1,31}(\\.[A-Za-z0-9_+'-]{1,31})?@([A-Za-z0-9]([A-Za-z0-9-]{0,38}[A-Za-z0-9])?\\.){1,4}"
    "[A-Za-z]{2,24}";

// RFC 3986: the characters of a name, and what may be added to them elsewhere; all of them also as %XX.
constexpr std::string_view kNameCharacters = "A-Za-z0-9._~!$&'()*+,;=";

/// As often as `most` says; negative: without limit.
std::string characters(std::string_view more, int32_t most) {
  const std::string times = most < 0 ? "*" : fmt::format("{{0,{}}}", most);
  return fmt::format("([{}{}-]|%[0-9A-Fa-f]{{2}}){}", kNameCharacters, more, times);
}

/// The most characters of each part, of which each may take three (%XX).
struct UriLimits {
  int32_t scheme = -1, user = -1, host = -1, path = -1, query = -1, fragment = -1;
};

/// Path, query and fragment behind a scheme, or, of a reference that has none, alone.
std::string hierarchy(bool relative, const UriLimits& limits) {
  const std::string user = limits.user == 0 ? "" : fmt::format("({}@)?", characters(":", limits.user));
  const std::string rest = characters(":@/", limits.path);
  const std::string port = "(:[0-9]{0,5})?";
  const std::string authority =
      fmt::format("//{}({}|\\[{}\\]){}(/{})?", user, characters("", limits.host), ipv6(), port, rest);
  const std::string_view one = "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
  // A colon in the first segment of a reference would make a scheme of what is before it.
  const std::string rootless = relative ? fmt::format("([A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{{2}}){}(/{})?",
                                                      characters("@", limits.path), rest)
                                        : fmt::format("{}{}", one, rest);
  return fmt::format("({}|/({}{})?|{})?(\\?{})?(#{})?", authority, one, rest, rootless,
                     characters(":@/?", limits.query), characters(":@/?", limits.fragment));
}

std::string uri_with(const UriLimits& limits) {
  const std::string more = limits.scheme < 0 ? "*" : fmt::format("{{0,{}}}", limits.scheme - 1);
  return fmt::format("[A-Za-z][A-Za-z0-9+.-]{}:{}", more, hierarchy(false, limits));
}

std::string uri() {
  return uri_with({});
}

std::string uri_reference() {
  return fmt::format("({}|{})", uri(), hierarchy(true, {}));
}

/// RFC 6901: what follows a tilde is 0 or 1.
constexpr std::string_view kPointer = "(/([^/~]|~[01])*)*";

struct Format {
  std::string_view name;
  std::string (*pattern)();
  int32_t shortest, longest;  // characters; longest < 0: no limit
};
/// Names that are plain ASCII are international ones, too.
constexpr std::array kFormats{
    Format{"date", date, 10, 10},
    Format{"time", [] { return fmt::format("{}{}", kClock, kOffset); }, 9, 24},
    Format{"date-time", [] { return fmt::format("{}T{}{}", date(), kClock, kOffset); }, 20, 35},
    Format{"duration", duration, 3, 62},
    Format{"email", [] { return std::string(kEmail); }, 6, 252},
    Format{"idn-email", [] { return std::string(kEmail); }, 6, 252},
    Format{"hostname", [] { return std::string(kHostname); }, 1, 245},
    Format{"idn-hostname", [] { return std::string(kHostname); }, 1, 245},
    Format{"ipv4", ipv4, 7, 15},
    Format{"ipv6", ipv6, 2, 45},
    Format{"uuid", [] { return std::string("[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"); }, 36, 36},
    Format{"uri", uri, 2, -1},
    Format{"iri", uri, 2, -1},
    Format{"uri-reference", uri_reference, 0, -1},
    Format{"iri-reference", uri_reference, 0, -1},
    Format{"json-pointer", [] { return std::string(kPointer); }, 0, -1},
    Format{"relative-json-pointer", [] { return fmt::format("(0|[1-9][0-9]{{0,14}})(#|{})", kPointer); }, 1, -1},
};

/// URIs of at most `longest` characters: each part has its share. Empty where there is no room for one worth writing.
std::string short_uri(int32_t longest) {
  constexpr int32_t kLeast = 100, kScheme = 12, kEncoded = 3;
  constexpr int32_t kSigns = 3 + 6 + 1 + 1 + 1;  // "://", a port, "/", "?", "#"
  if (longest < kLeast) return {};
  int32_t left = longest - kScheme - kSigns;
  UriLimits limits;
  limits.scheme = kScheme;
  limits.user = 0;
  limits.host = std::max(std::min<int32_t>(left / 3, 255), 47) / kEncoded;  // 47: an IPv6 address in its brackets
  left -= std::max(limits.host * kEncoded, 47);
  limits.path = left / 2 / kEncoded;
  limits.query = limits.fragment = left / 4 / kEncoded;
  return uri_with(limits);
}

}  // namespace

std::optional<StringFormat> string_format(std::string_view format, int32_t longest) {
  const auto found = std::ranges::find(kFormats, format, &Format::name);
  if (found == kFormats.end()) return std::nullopt;
  StringFormat out{fmt::format("^{}$", found->pattern()), found->shortest, found->longest};
  if (longest < 0 || !(format == "uri" || format == "iri")) return out;
  const std::string limited = short_uri(longest);
  return limited.empty() ? out : StringFormat{fmt::format("^{}$", limited), found->shortest, longest};
}

std::string known_formats() {
  std::array<std::string_view, kFormats.size()> names;
  std::ranges::transform(kFormats, names.begin(), &Format::name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<NumberBounds> bounds_of_format(std::string_view format, bool integer) {
  if (!integer) {
    if (format == "double") return NumberBounds();
    // Without an exponent all that is written is finite in 32 bits, and with bounds none is written.
    constexpr double kFloat = 1e15;
    return format == "float" ? std::optional(NumberBounds{-kFloat, kFloat, false, false}) : std::nullopt;
  }
  struct Range {
    std::string_view name;
    std::optional<double> low, high;
  };
  // Whole numbers of 64 bits are wider than what is written (15 digits).
  constexpr double kNone = 0;
  static const std::array kRanges{
      Range{"int8", -128, 127},
      Range{"int16", -32768, 32767},
      Range{"int32", -2147483648.0, 2147483647},
      Range{"int64", std::nullopt, std::nullopt},
      Range{"uint8", kNone, 255},
      Range{"uint16", kNone, 65535},
      Range{"uint32", kNone, 4294967295.0},
      Range{"uint64", kNone, std::nullopt},
  };
  const auto found = std::ranges::find(kRanges, format, &Range::name);
  if (found == kRanges.end()) return std::nullopt;
  return NumberBounds{found->low, found->high, false, false};
}

}  // namespace cohort::grammar
