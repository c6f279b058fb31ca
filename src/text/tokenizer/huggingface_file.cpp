#include "text/tokenizer/huggingface_file.h"

#include <exception>

#include "base/result.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {
namespace {

using nlohmann::json;

/// Receives the events of nlohmann's parser. Returning false stops it; `error_` then says why.
class Reader : public json::json_sax_t {
 public:
  Reader(HuggingFaceFile& file, const TokenizerLimits& limits) : file_(file), limits_(limits) {}

  const std::string& error() const { return error_; }
  ErrorCode code() const { return code_; }

  bool null() override { return leaf(json(nullptr), "null"); }
  bool boolean(bool value) override { return leaf(json(value), "a boolean"); }
  bool string(string_t& value) override {
    switch (place_) {
      case Place::merges:
        return merge_line(value);
      case Place::merge:
        if (merge_parts_ == 2) {
          return stop(ErrorCode::corrupt, "model.merges: an entry of more than two strings");
        }
        (merge_parts_++ == 0 ? file_.merges.back().first : file_.merges.back().second) = std::move(value);
        return true;
      case Place::score:
        if (score_parts_++ != 0) {
          return stop(ErrorCode::corrupt, "model.vocab: an entry that is not [string, number]");
        }
        file_.scores.back().first = std::move(value);
        return true;
      default:
        return leaf(json(std::move(value)), "a string");
    }
  }
  bool number_integer(number_integer_t value) override {
    return number(value, static_cast<double>(value), json(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    const auto integer = value > INT64_MAX ? int64_t{-1} : static_cast<int64_t>(value);
    return number(integer, static_cast<double>(value), json(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return number(-1, value, json(value)); }
  bool binary(binary_t&) override { return stop(ErrorCode::corrupt, "binary data"); }

  bool start_object(size_t) override {
    if (place_ == Place::dom && stack_.size() == 2 && keys_[0] == "model" && key_ == "vocab") {
      place_ = Place::vocab;
      file_.has_vocab = true;
      return deeper();
    }
    return open(json::object());
  }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool end_object() override {
    if (place_ == Place::vocab) {
      place_ = Place::dom;
      --depth_;
      return true;
    }
    return close();
  }
  bool start_array(size_t) override {
    const bool in_model = place_ == Place::dom && stack_.size() == 2 && keys_[0] == "model";
    if (in_model && key_ == "vocab") {
      place_ = Place::score_list;
      file_.has_scores = true;
      return deeper();
    }
    if (in_model && key_ == "merges") {
      place_ = Place::merges;
      file_.has_merges = true;
      return deeper();
    }
    if (place_ == Place::score_list) {
      place_ = Place::score;
      score_parts_ = 0;
      file_.scores.emplace_back();
      return file_.scores.size() <= limits_.tokens ? deeper() : too_many("tokens", limits_.tokens);
    }
    if (place_ == Place::merges) {
      place_ = Place::merge;
      merge_parts_ = 0;
      file_.merges.emplace_back();
      return file_.merges.size() <= limits_.merges ? deeper() : too_many("merges", limits_.merges);
    }
    return open(json::array());
  }
  bool end_array() override {
    switch (place_) {
      case Place::score_list:
      case Place::merges:
        place_ = Place::dom;
        --depth_;
        return true;
      case Place::score:
        place_ = Place::score_list;
        --depth_;
        return score_parts_ == 2 || stop(ErrorCode::corrupt, "model.vocab: an entry that is not [string, number]");
      case Place::merge:
        place_ = Place::merges;
        --depth_;
        return merge_parts_ == 2 || stop(ErrorCode::corrupt, "model.merges: an entry that is not two strings");
      default:
        return close();
    }
  }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    return stop(ErrorCode::corrupt, fmt::format("not JSON at byte {}", position));
  }

 private:
  enum class Place { dom, vocab, score_list, score, merges, merge };

  bool stop(ErrorCode code, std::string what) {
    if (error_.empty()) {
      code_ = code;
      error_ = std::move(what);
    }
    return false;
  }
  bool too_many(std::string_view what, size_t limit) {
    return stop(ErrorCode::capacity, fmt::format("more than {} {}", limit, what));
  }
  bool deeper() { return ++depth_ <= limits_.json_depth || too_many("levels of nesting", limits_.json_depth); }
  bool unexpected(std::string_view what) {
    const bool vocab = place_ == Place::vocab || place_ == Place::score_list || place_ == Place::score;
    return stop(ErrorCode::corrupt, fmt::format("model.{}: {} in a wrong place", vocab ? "vocab" : "merges", what));
  }

  /// Puts a value where the document is now; its address is good until the next value of the same parent.
  json* put(json value) {
    if (++values_ > limits_.json_values) {
      too_many("values", limits_.json_values);
      return nullptr;
    }
    if (stack_.empty()) {
      file_.rest = std::move(value);
      return &file_.rest;
    }
    json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    json& place = parent[key_];
    place = std::move(value);
    return &place;
  }
  bool leaf(json value, std::string_view what) {
    return place_ == Place::dom ? put(std::move(value)) != nullptr : unexpected(what);
  }
  bool open(json value) {
    if (place_ != Place::dom) {
      return unexpected("a nested value");
    }
    json* const place = put(std::move(value));
    if (place == nullptr || !deeper()) {
      return false;
    }
    if (!stack_.empty()) {
      keys_.push_back(key_);
    }
    stack_.push_back(place);
    return true;
  }
  bool close() {
    stack_.pop_back();
    if (!keys_.empty()) {
      keys_.pop_back();
    }
    --depth_;
    return true;
  }

  bool number(int64_t integer, double value, json as_json) {
    if (place_ == Place::vocab) {
      if (integer < 0 || integer > INT32_MAX) {
        return stop(ErrorCode::corrupt,
                    fmt::format("model.vocab: the id of \"{}\" is no token id", key_.substr(0, 80)));
      }
      file_.vocab.emplace_back(std::move(key_), static_cast<int32_t>(integer));
      key_.clear();
      return file_.vocab.size() <= limits_.tokens || too_many("tokens", limits_.tokens);
    }
    if (place_ == Place::score) {
      if (score_parts_++ != 1) {
        return stop(ErrorCode::corrupt, "model.vocab: an entry that is not [string, number]");
      }
      file_.scores.back().second = value;
      return true;
    }
    return leaf(std::move(as_json), "a number");
  }

  /// The older form: both tokens in one string, with a space between.
  bool merge_line(const std::string& line) {
    if (line.rfind("#version", 0) == 0) {
      return true;
    }
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      return stop(ErrorCode::corrupt, fmt::format("model.merges: \"{}\" is not two tokens with one space between",
                                                  repair_utf8(std::string_view(line).substr(0, 80))));
    }
    file_.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    return file_.merges.size() <= limits_.merges || too_many("merges", limits_.merges);
  }

  HuggingFaceFile& file_;
  const TokenizerLimits& limits_;
  Place place_ = Place::dom;
  std::vector<json*> stack_;
  std::vector<std::string> keys_;  // of stack_[1], stack_[2], ...
  std::string key_;
  size_t depth_ = 0, values_ = 0;
  int score_parts_ = 0, merge_parts_ = 0;
  ErrorCode code_ = ErrorCode::corrupt;
  std::string error_;
};

}  // namespace

Expected<HuggingFaceFile> read_huggingface_file(std::string_view text, const TokenizerLimits& limits) {
  if (text.size() > limits.json_bytes) {
    return fail(ErrorCode::capacity, "tokenizer.json has {} bytes; the limit is {}", text.size(), limits.json_bytes);
  }
  HuggingFaceFile file;
  Reader reader(file, limits);
  try {
    if (!json::sax_parse(text.begin(), text.end(), &reader)) {
      return fail(reader.code(), "tokenizer.json: {}", reader.error());
    }
  } catch (const std::exception& e) {
    return fail(ErrorCode::corrupt, "tokenizer.json: {}", e.what());
  }
  if (!file.rest.is_object()) {
    return fail(ErrorCode::corrupt, "tokenizer.json is not a JSON object");
  }
  return file;
}

}  // namespace cohort::text
