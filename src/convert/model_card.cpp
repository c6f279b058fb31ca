#include "convert/model_card.h"

#include <algorithm>

#include "base/result.h"

namespace cohort::convert_detail {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") + 1 - first);
}

/// A scalar without its quotes or, when it is plain, without a comment behind it.
std::string scalar(std::string_view text) {
  text = trimmed(text);
  if (!text.empty() && (text.front() == '"' || text.front() == '\'')) {
    const size_t end = text.find(text.front(), 1);
    return std::string(text.substr(1, end == text.npos ? text.npos : end - 1));
  }
  if (text.starts_with('#')) return {};
  return std::string(trimmed(text.substr(0, text.find(" #"))));
}

/// "[a, b]", or one scalar, or nothing.
std::vector<std::string> values(std::string_view text) {
  text = trimmed(text);
  if (!text.starts_with('[')) {
    std::string one = scalar(text);
    return one.empty() ? std::vector<std::string>() : std::vector<std::string>{std::move(one)};
  }
  std::vector<std::string> out;
  text = text.substr(1, text.find(']') - 1);
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (std::string item = scalar(text.substr(0, comma)); !item.empty()) out.push_back(std::move(item));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

/// The text's first line, which is taken away from it.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

/// "organisation/model" with nothing that could not stand in an address.
bool is_repository(std::string_view id) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./";
  const size_t slash = id.find('/');
  return slash != id.npos && slash > 0 && slash + 1 < id.size() && id.find('/', slash + 1) == id.npos &&
         id.front() != '.' && id.find_first_not_of(kAllowed) == id.npos;
}

Expected<void> add_text(const std::string& key, const std::string& text, gguf::Metadata& out) {
  if (text.empty() || out.contains(key)) return {};
  return out.add(key, gguf::Value(text));
}

}  // namespace

ModelCard parse_model_card(std::string_view text) {
  ModelCard card;
  if (trimmed(take_line(text)) != "---") return card;
  bool closed = false;
  std::string key;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (trimmed(line) == "---") {
      closed = true;
      break;
    }
    std::vector<std::string> items;
    const std::string_view content = trimmed(line);
    if (content.starts_with("- ")) {
      items = values(content.substr(2));
    } else if (!line.empty() && line.front() != ' ' && line.front() != '\t' && line.find(':') != line.npos) {
      key = trimmed(line.substr(0, line.find(':')));
      items = values(line.substr(line.find(':') + 1));
    }
    for (const std::string& item : items) {
      if (key == "license") card.license = item;
      if (key == "license_name") card.license_name = item;
      if (key == "license_link") card.license_link = item;
      if (key == "base_model") card.base_models.push_back(item);
    }
  }
  return closed ? card : ModelCard();
}

Expected<void> add_model_card(const ModelCard& card, gguf::Metadata& out) {
  COHORT_TRY(add_text("general.license", card.license, out));
  COHORT_TRY(add_text("general.license.name", card.license_name, out));
  COHORT_TRY(add_text("general.license.link", card.license_link, out));
  if (card.base_models.empty() || out.contains("general.base_model.count")) return {};
  COHORT_TRY(out.add("general.base_model.count", gguf::Value(static_cast<uint32_t>(card.base_models.size()))));
  for (size_t i = 0; i < card.base_models.size(); ++i) {
    const std::string& id = card.base_models[i];
    const std::string prefix = fmt::format("general.base_model.{}.", i);
    const bool repository = is_repository(id);
    COHORT_TRY(add_text(prefix + "name", repository ? id.substr(id.find('/') + 1) : id, out));
    if (!repository) continue;
    COHORT_TRY(add_text(prefix + "organization", id.substr(0, id.find('/')), out));
    COHORT_TRY(add_text(prefix + "repo_url", "https://huggingface.co/" + id, out));
  }
  return {};
}

}  // namespace cohort::convert_detail
