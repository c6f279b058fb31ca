#include "base/escape_html.h"

namespace cohort {

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      case '"':
        escaped += "&#34;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace cohort
