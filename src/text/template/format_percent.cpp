// "format" % arguments.
#include <cmath>

#include "base/escape_html.h"
#include "text/template/callable.h"
#include "text/template/format_number.h"
#include "text/template/operations.h"

namespace cohort::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& format, const Value& argument)
      : runtime_(runtime), format_(text_of(format)), escapes_(format.as<StringObject>().markup), argument_(argument) {
    is_tuple_ = argument.is(Kind::tuple);
    is_mapping_ =
        argument.is(Kind::dict) || argument.is(Kind::list) || argument.is(Kind::range) || argument.is_undefined();
  }

  std::string run() {
    runtime_.spend_bytes(format_.size());
    Text out(runtime_);
    while (position_ < format_.size()) {
      size_t percent = format_.find('%', position_);
      if (percent == std::string_view::npos) percent = format_.size();
      out.append(format_.substr(position_, percent - position_));
      position_ = percent;
      if (percent < format_.size()) out.append(directive());
    }
    bool unused = is_tuple_ ? next_ < items_of(argument_).size() : next_ == 0;
    if (unused && !is_mapping_) refuse("not all arguments converted during string formatting");
    return out.take();
  }

 private:
  char peek() const {
    if (position_ >= format_.size()) refuse("incomplete format");
    return format_[position_];
  }

  /// The next argument, or the one that a (name) has chosen.
  Value take() {
    if (!named_.is_missing()) return std::exchange(named_, Value());
    size_t available = is_tuple_ ? items_of(argument_).size() : used_names_ ? 0 : 1;
    if (next_ >= available) refuse("not enough arguments for format string");
    return is_tuple_ ? items_of(argument_)[next_++] : (++next_, argument_);
  }

  Int number() {
    if (peek() == '*') {
      ++position_;
      return integer_argument(take(), "the argument for *");
    }
    Int value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (format_[position_++] - '0');
      if (value > (Int{1} << 31)) refuse("a width or precision in a format is too large");
    }
    return value;
  }

  void choose_name() {
    size_t begin = position_ + 1;
    int open = 0;
    do {
      if (peek() == '(') ++open;
      if (peek() == ')') --open;
      ++position_;
    } while (open > 0);
    if (!is_mapping_) refuse("format requires a mapping");
    std::string name(format_.substr(begin, position_ - 1 - begin));
    if (argument_.is_undefined()) refuse("{}", argument_.as<UndefinedObject>().message);
    const Value* found =
        argument_.is(Kind::dict) ? argument_.as<DictObject>().find(runtime_, runtime_.string(name)) : nullptr;
    if (found == nullptr) refuse("the arguments of the format have no '{}'", name);
    named_ = *found;
    used_names_ = true;
  }

  std::string directive() {
    ++position_;
    if (peek() == '%') {
      ++position_;
      return "%";
    }
    bool left = false, alternate = false, zero = false;
    char sign = '-';
    if (peek() == '(') choose_name();
    for (;; ++position_) {
      char flag = peek();
      if (flag == '-') {
        left = true;
      } else if (flag == '#') {
        alternate = true;
      } else if (flag == '0') {
        zero = true;
      } else if (flag == '+' || (flag == ' ' && sign == '-')) {
        sign = flag;
      } else if (flag != ' ') {
        break;
      }
    }
    Int width = number(), precision = -1;
    if (width < 0) left = true, width = -width;
    if (peek() == '.') {
      ++position_;
      precision = std::max<Int>(number(), 0);
    }
    if (peek() == 'h' || peek() == 'l' || peek() == 'L') ++position_;
    char type = peek();
    ++position_;
    std::string prefix, body = converted(type, precision, alternate, sign, prefix);
    bool numeric = type != 's' && type != 'r' && type != 'a' && type != 'c';
    char align = left ? '<' : zero && numeric ? '=' : '>';
    return aligned(runtime_, prefix, body, width, align, align == '=' ? "0" : " ");
  }

  /// The argument as `type` writes it; its sign and base go to `prefix`.
  std::string converted(char type, Int precision, bool alternate, char sign, std::string& prefix) {
    switch (type) {
      case 's':
      case 'r':
      case 'a':
        return text(type, precision);
      case 'c':
        return character_of(take());
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return integer(type, precision, alternate, sign, prefix);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        Value value = take();
        if (!value.is_number()) refuse("must be real number, not {}", type_name(value));
        double number = value.number();
        prefix = sign_of(std::signbit(number) && !std::isnan(number), sign);
        return float_digits(runtime_, std::abs(number), type, precision < 0 ? 6 : precision, alternate);
      }
      default:
        take();
        refuse("unsupported format character '{}'", type);
    }
  }

  std::string text(char type, Int precision) {
    Value value = take();
    std::string shown;
    if (type == 'a') {
      shown = ascii_repr(runtime_, value);
    } else {
      Text out(runtime_);
      type == 's' ? append_str(out, value) : append_repr(out, value);
      shown = out.take();
    }
    bool is_markup = value.is_string() && value.as<StringObject>().markup;
    if (escapes_ && !is_markup) shown = escape_html(shown);
    return precision < 0 ? shown : std::string(first_code_points(shown, precision));
  }

  std::string integer(char type, Int precision, bool alternate, char sign, std::string& prefix) {
    Value value = take();
    bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (value.is(Kind::floating) && decimal) value = to_integer(value.floating());
    if (!value.is_integral()) refuse("%{} format: an integer is required, not {}", type, type_name(value));
    std::string digits = integer_text(value.integer(), decimal ? 10 : type == 'o' ? 8 : 16, type == 'X');
    prefix = sign_of(value.integer() < 0, sign);
    if (value.integer() < 0) digits.erase(0, 1);
    if (alternate && !decimal) prefix += type == 'o' ? "0o" : type == 'x' ? "0x" : "0X";
    return aligned(runtime_, "", digits, precision, '>', "0");
  }

  Runtime& runtime_;
  std::string_view format_;
  bool escapes_;
  const Value& argument_;
  bool is_tuple_ = false, is_mapping_ = false, used_names_ = false;
  size_t position_ = 0, next_ = 0;
  Value named_;
};

}  // namespace

Value format_percent(Runtime& runtime, const Value& format, const Value& argument) {
  return string_like(runtime, format, PercentFormatter(runtime, format, argument).run());
}

}  // namespace cohort::jinja
