// Numbers in the spellings of C's printf, which Python's % and format() share.
#pragma once

#include <string>
#include <string_view>

#include "text/template/runtime.h"
#include "text/template/value.h"

namespace cohort::jinja {

/// Digits of a float as printf's %e, %f or %g would write its magnitude ("inf" and "nan" included).
std::string float_digits(Runtime& runtime, double magnitude, char type, Int precision, bool alternate);
/// "-", "", "+" or " " for a sign option of '-', '+' or ' '.
std::string_view sign_of(bool negative, char option);
/// One character of a format: an integer's code point, or a text of one character.
std::string character_of(const Value& value);
/// `text` filled up to `width` code points; align is '<', '>', '^' or '=' (behind the sign).
std::string aligned(Runtime& runtime, std::string_view sign, std::string_view text, Int width, char align,
                    std::string_view fill);
/// repr() with everything outside of ASCII escaped.
std::string ascii_repr(Runtime& runtime, const Value& value);
/// The first `count` code points.
std::string_view first_code_points(std::string_view text, Int count);

}  // namespace cohort::jinja
