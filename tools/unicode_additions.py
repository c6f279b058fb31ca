#!/usr/bin/env python3
"""Writes src/text/tokenizer/unicode_additions.h: the characters assigned after Unicode 14.

Debian 12's PCRE2 knows Unicode 14 and its utf8proc Unicode 15, the `tokenizers` package Unicode 16. The table closes the gap.
Needs `pip install unicodedata2==16.0.0` and a Python whose own unicodedata is 14.0.0 (3.11).
"""
import pathlib
import unicodedata

import unicodedata2

OLD, NEW = "14.0.0", "16.0.0"
assert unicodedata.unidata_version == OLD, unicodedata.unidata_version
assert unicodedata2.unidata_version == NEW, unicodedata2.unidata_version

ranges = []  # (category, first, last)
for code in range(0x110000):
    category = unicodedata2.category(chr(code))
    if category == "Cn" or unicodedata.category(chr(code)) != "Cn":
        continue
    if ranges and ranges[-1][0] == category and ranges[-1][2] == code - 1:
        ranges[-1] = (category, ranges[-1][1], code)
    else:
        ranges.append((category, code, code))

lines = [
    "// Characters assigned after Unicode %s and up to %s, by general category. Written by tools/unicode_additions.py." % (OLD, NEW),
    "#pragma once",
    "",
    "#include <array>",
    "",
    "namespace cohort::text {",
    "",
    "struct UnicodeAddition {",
    "  char category[3];",
    "  char32_t first, last;",
    "};",
    "",
    "// clang-format off",
    "inline constexpr std::array<UnicodeAddition, %d> kUnicodeAdditions = {{" % len(ranges),
]
row = "   "
for category, first, last in ranges:
    item = ' {"%s", 0x%X, 0x%X},' % (category, first, last)
    if len(row) + len(item) > 118:
        lines.append(row)
        row = "   "
    row += item
lines += [row, "}};", "// clang-format on", "", "}  // namespace cohort::text", ""]
target = pathlib.Path(__file__).parent.parent / "src/text/tokenizer/unicode_additions.h"
target.write_text("\n".join(lines))
print(f"{target}: {len(ranges)} ranges")
