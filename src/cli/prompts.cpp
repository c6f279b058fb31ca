#include "cli/prompts.h"

#include <algorithm>

#include "base/file.h"
#include "base/result.h"
#include "cli/values.h"

namespace cohort::cli {
namespace {

constexpr size_t kMaxBytes = size_t{256} << 20;  // far more than any context holds

Expected<std::string> read_utf8(const char* flag, const std::string& path) {
  auto text = read_text_stream(path, kMaxBytes);
  if (!text) return fail(text.error().code, "{}: {}", flag, text.error().message);
  const std::string where = first_invalid_byte(*text);
  if (!where.empty()) {
    return fail(ErrorCode::corrupt, "{}: '{}' is not UTF-8: {} belongs to no character; {}", flag, path, where,
                kUtf8Fix);
  }
  return text;
}

Expected<void> add_file(const std::string& path, Prompts& out) {
  COHORT_ASSIGN(std::string text, read_utf8("-f", path));
  // Editors end files so; nobody means it.
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  if (text.empty()) return fail(ErrorCode::corrupt, "-f: '{}' is empty; a prompt needs at least one character", path);
  const auto returns = std::ranges::count(text, '\r');
  if (returns > 0) {
    out.notes.push_back(fmt::format(
        "the prompt of '{}' holds {} carriage returns (CR), which the model will see (remove them with: tr -d '\\r')",
        path, returns));
  }
  out.texts.push_back(std::move(text));
  return {};
}

std::string unescaped(std::string_view line) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool escape = line[i] == '\\' && i + 1 < line.size() && (line[i + 1] == 'n' || line[i + 1] == '\\');
    if (!escape) {
      out += line[i];
    } else {
      out += line[++i] == 'n' ? '\n' : '\\';
    }
  }
  return out;
}

Expected<void> add_lines(const std::string& path, Prompts& out) {
  COHORT_ASSIGN(const std::string text, read_utf8("--prompts", path));
  const size_t before = out.texts.size();
  size_t number = 0;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    std::string_view line = std::string_view(text).substr(start, end - start);
    start = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (line.find_first_not_of(" \t\r\v\f") == line.npos) {
      out.notes.push_back(fmt::format("line {} of '{}' holds only white space; it is no prompt", number, path));
      continue;
    }
    out.texts.push_back(unescaped(line));
  }
  if (out.texts.size() == before)
    return fail(ErrorCode::corrupt, "--prompts: '{}' holds no prompt; put one on each line", path);
  return {};
}

}  // namespace

Expected<Prompts> collect_prompts(const PromptSources& sources) {
  Prompts out;
  out.texts = sources.texts;
  if (!sources.file.empty()) COHORT_TRY(add_file(sources.file, out));
  if (!sources.lines.empty()) COHORT_TRY(add_lines(sources.lines, out));
  // One prompt and --parallel: so many continuations of it, each with its own seed.
  if (out.texts.size() == 1 && sources.copies > 1)
    out.texts.resize(static_cast<size_t>(sources.copies), std::string(out.texts[0]));
  return out;
}

}  // namespace cohort::cli
