#!/usr/bin/env python3
"""Writes src/text/template/unicode_tables.cpp: where Python's str methods differ from utf8proc's categories and simple case
mappings. Needs libutf8proc.so.2; characters that only one of the two Unicode versions knows are left to utf8proc."""
import ctypes
import pathlib
import unicodedata

lib = ctypes.CDLL("libutf8proc.so.2")
for function in ("toupper", "tolower", "totitle"):
    getattr(lib, "utf8proc_" + function).argtypes = [ctypes.c_int32]
    getattr(lib, "utf8proc_" + function).restype = ctypes.c_int32
lib.utf8proc_category_string.argtypes = [ctypes.c_int32]
lib.utf8proc_category_string.restype = ctypes.c_char_p

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORY = {c: lib.utf8proc_category_string(c).decode() for c in ALL}
COMMON = [c for c in ALL if CATEGORY[c] == unicodedata.category(chr(c))]


def mapping(name, utf8proc, python):
    rows = [f'    {{0x{c:04x}, "{python(chr(c))}"}},' for c in COMMON if python(chr(c)) != chr(utf8proc(c))]
    return f"constexpr CaseException {name}[] = {{\n" + "\n".join(rows) + "\n};\n"


def ranges(name, python, category):
    merged = []
    for c in (c for c in COMMON if python(chr(c)) != category(CATEGORY[c])):
        if merged and merged[-1][1] == c - 1:
            merged[-1][1] = c
        else:
            merged.append([c, c])
    rows = [f"    {{0x{a:04x}, 0x{b:04x}}}," for a, b in merged]
    return f"constexpr CodePointRange {name}[] = {{\n" + "\n".join(rows) + "\n};\n"


text = """// Written by tools/unicode_exceptions.py: what Python's str methods know beyond utf8proc's categories and simple mappings.
#include "text/template/unicode_tables.h"

namespace cohort::jinja {
namespace {

""" + "\n".join([
    mapping("kUpper", lib.utf8proc_toupper, str.upper),
    mapping("kLower", lib.utf8proc_tolower, str.lower),
    mapping("kTitle", lib.utf8proc_totitle, str.title),
    ranges("kDigit", str.isdigit, lambda c: c == "Nd"),
    ranges("kNumeric", str.isnumeric, lambda c: c[0] == "N"),
    ranges("kUppercase", str.isupper, lambda c: c == "Lu"),
    ranges("kLowercase", str.islower, lambda c: c == "Ll"),
]) + """
}  // namespace

std::span<const CaseException> upper_exceptions() { return kUpper; }
std::span<const CaseException> lower_exceptions() { return kLower; }
std::span<const CaseException> title_exceptions() { return kTitle; }
std::span<const CodePointRange> digit_ranges() { return kDigit; }
std::span<const CodePointRange> numeric_ranges() { return kNumeric; }
std::span<const CodePointRange> uppercase_ranges() { return kUppercase; }
std::span<const CodePointRange> lowercase_ranges() { return kLowercase; }

}  // namespace cohort::jinja
"""
(pathlib.Path(__file__).parent.parent / "src/text/template/unicode_tables.cpp").write_text(text)
