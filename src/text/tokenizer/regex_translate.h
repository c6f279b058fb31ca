// Tokenizer files hold patterns in Oniguruma's dialect; this library matches with PCRE2. The two differ in the meaning
// of \s, \w, \h, \v, \b and $, in class operations ([a-z&&[^aeiou]], nested classes), interval quantifiers and property
// names.
#pragma once

#include <string>
#include <string_view>

#include "cohort/error.h"

namespace cohort::text {

/// The PCRE2 pattern (for PCRE2_UTF | PCRE2_UCP) that matches what the Oniguruma pattern matches. With `additions`,
/// general categories include the characters of unicode_additions.h, at some cost in speed. Known differences that
/// remain: case-insensitive multi-character foldings (sharp s and "ss"). Errors: unsupported, naming the construct.
Expected<std::string> translate_oniguruma(std::string_view pattern, bool additions);

}  // namespace cohort::text
