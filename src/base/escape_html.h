// Text inside HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace cohort {

/// `text` with & < > ' " as entities (as Python's markupsafe writes them), for text between tags and in attributes.
std::string escape_html(std::string_view text);

}  // namespace cohort
