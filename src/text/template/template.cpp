#include "text/template/template.h"

#include <ctime>
#include <new>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "text/template/ast.h"
#include "text/template/interpreter.h"
#include "text/template/runtime.h"
#include "text/template/unicode.h"

namespace cohort {

std::tm system_local_time() {
  std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return local;
}

Expected<Template> Template::parse(std::string_view source, const TemplateLimits& limits) {
  if (source.size() > limits.source_bytes) {
    return fail(ErrorCode::capacity, "the template has {} bytes, more than the limit 'source_bytes' of {}",
                source.size(), limits.source_bytes);
  }
  if (!jinja::is_valid_utf8(source)) return fail(ErrorCode::corrupt, "the template is not valid UTF-8");
  try {
    auto program = std::make_shared<jinja::Program>();
    program->limits = limits;
    jinja::parse(source, *program);
    jinja::resolve(*program);
    return Template(std::move(program));
  } catch (const jinja::ParseFailure& failure) {
    return fail(failure.code, "template line {}: {}", failure.line, failure.message);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::capacity, "no memory left to parse a template of {} bytes", source.size());
  }
}

Expected<std::string> Template::render(const nlohmann::ordered_json& context, const TemplateClock& clock) const {
  if (!context.is_object()) {
    return fail(ErrorCode::invalid_argument, "the context of a template must be a JSON object, not {}",
                context.type_name());
  }
  jinja::Runtime runtime(program_->limits, clock);
  jinja::Interpreter interpreter(*program_, runtime, context);
  try {
    return interpreter.run();
  } catch (const jinja::Failure& failure) {
    return fail(failure.code, "template line {}: {}", interpreter.line(), failure.message);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::capacity, "template line {}: no memory left", interpreter.line());
  }
}

}  // namespace cohort
