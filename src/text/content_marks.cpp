#include "text/content_marks.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/result.h"

namespace cohort {

using Json = nlohmann::ordered_json;

namespace {

// U+FDD0 to U+FDEF are noncharacters, for use within a program.
constexpr uint32_t kFirst = 0xFDD0, kCount = 32;

std::string spelled(uint32_t code) {
  std::string out;
  text::append_utf8(out, code);
  return out;
}

std::string escape(uint32_t code) {
  return fmt::format("\\u{:04x}", code);
}

bool has(const Json& json, std::string_view part) {
  if (json.is_string()) return json.get_ref<const std::string&>().find(part) != std::string::npos;
  if (json.is_array()) return std::ranges::any_of(json, [&](const Json& one) { return has(one, part); });
  if (!json.is_object()) return false;
  return std::ranges::any_of(json.items(), [&](const auto& member) {
    return member.key().find(part) != std::string::npos || has(member.value(), part);
  });
}

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace

Expected<ContentMarks> ContentMarks::create(const text::Tokenizer& tokenizer, std::span<const Json* const> texts) {
  for (uint32_t code = kFirst; code < kFirst + kCount; ++code) {
    const std::string mark = spelled(code), escaped = escape(code);
    if (std::ranges::none_of(texts, [&](const Json* json) { return has(*json, mark) || has(*json, escaped); }))
      return ContentMarks(tokenizer, mark, escaped);
  }
  return fail(
      ErrorCode::invalid_argument,
      "'messages' has all of the noncharacters U+FDD0 to U+FDEF, one of which is needed to keep texts apart from "
      "the chat template; remove one");
}

std::string ContentMarks::marked(const std::string& text, std::span<const std::string_view> except) const {
  const std::vector<size_t> places = tokenizer_.special_places(text);
  if (places.empty()) return text;
  std::string out;
  size_t done = 0;
  for (size_t place : places) {
    const std::string_view rest = std::string_view(text).substr(place);
    if (std::ranges::any_of(except, [&](std::string_view one) { return rest.starts_with(one); })) continue;
    do ++place;
    while (place < text.size() && continues_character(text[place]));
    out.append(text, done, place - done).append(mark_);
    done = place;
  }
  return out.append(text, done);
}

void ContentMarks::put_into(Json& json, std::span<const std::string_view> except) const {
  if (json.is_string()) {
    json = marked(json.get_ref<const std::string&>(), except);
  } else if (json.is_array()) {
    for (Json& one : json) put_into(one, except);
  } else if (json.is_object()) {
    Json out = Json::object();
    for (auto& [name, value] : json.items()) {
      put_into(value, except);
      // Not by look-up: that would take long for large objects, and marked names differ as the names did.
      out.get_ref<Json::object_t&>().emplace_back(marked(name, except), std::move(value));
    }
    json = std::move(out);
  }
}

void ContentMarks::put_into_messages(Json& messages) const {
  constexpr std::array<std::string_view, 4> kThoughts{"<think>", "</think>", "<|channel>", "<channel|>"};
  for (Json& message : messages) {
    const bool own = message.value("role", "") == "assistant";
    put_into(message, own ? std::span(kThoughts) : std::span<const std::string_view>());
  }
}

MarkedText ContentMarks::take_out(std::string_view rendered) const {
  MarkedText out;
  while (true) {
    const size_t mark = std::min(rendered.find(mark_), rendered.find(escaped_));
    out.text.append(rendered.substr(0, mark));
    if (mark == std::string_view::npos) return out;
    rendered.remove_prefix(mark + (rendered.substr(mark).starts_with(mark_) ? mark_ : escaped_).size());
    size_t place = out.text.size();
    if (place == 0) continue;  // the template has cut the character before it away
    do --place;
    while (place > 0 && continues_character(out.text[place]));
    out.literal.push_back(place);
  }
}

}  // namespace cohort
