// Chat templates: a sandboxed interpreter of the part of Jinja2 that they use, with the meaning that Python's jinja2
// gives it in transformers' configuration (trim_blocks, lstrip_blocks, loop controls, the generation tag, an immutable
// sandbox). A template reads its context and writes text; it cannot reach files, the network, or anything but the clock
// it is given.
#pragma once

#include <cstddef>
#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cohort/error.h"

namespace cohort {

/// What one template may cost. A template that needs more fails with ErrorCode::capacity and the name of the limit.
struct TemplateLimits {
  size_t source_bytes = size_t{1} << 20;
  size_t syntax_depth = 200;                // nested tags, brackets and operands of one expression
  size_t value_depth = 200;                 // lists in lists, of the context and of the template
  size_t steps = 50'000'000;                // expressions, statements and iterations; long texts count as several
  size_t depth = 1000;                      // nested evaluations: bounds recursive macros and the stack (0.4 MB)
  size_t output_bytes = size_t{64} << 20;   // the rendered text
  size_t memory_bytes = size_t{256} << 20;  // texts and lists that the template makes and holds at one time
};

/// The local time that strftime_now formats.
using TemplateClock = std::function<std::tm()>;
std::tm system_local_time();

namespace jinja {
struct Program;
}

/// A parsed template. Immutable; copies share the program; any number of threads may render at once.
class Template {
 public:
  /// Errors name the line: corrupt (syntax), unsupported (include, import, blocks, rare filters), capacity (limits).
  static Expected<Template> parse(std::string_view source, const TemplateLimits& limits = {});

  /// The text of the template with the members of the object `context` as its variables, in their order. Errors name
  /// the line: invalid_argument (raise_exception, an undefined value, an operation that Python refuses), capacity
  /// (limits).
  Expected<std::string> render(const nlohmann::ordered_json& context,
                               const TemplateClock& clock = system_local_time) const;

 private:
  explicit Template(std::shared_ptr<const jinja::Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace cohort
