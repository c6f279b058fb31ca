#include "text/text_model.h"

#include <filesystem>

#include "base/result.h"
#include "text/tokenizer/gguf_data.h"
#include "text/tokenizer/load.h"

namespace cohort {
namespace {

Expected<text::Tokenizer> folder_tokenizer(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder / "tokenizer.json", ignored)) {
    return fail(ErrorCode::not_found,
                "'{}' has no tokenizer.json; other tokenizer files are not read (save one with the tokenizers package)",
                folder.string());
  }
  return text::load_tokenizer(folder);
}

bool is_base_model(const TextModel& model) {
  const std::string& source = model.chat_template_source;
  if (source.empty()) return true;
  constexpr std::string_view kTurnEnd = "<|im_end|>";
  const auto end = model.tokenizer.eos_id();
  return source.find(kTurnEnd) != std::string::npos && end && model.tokenizer.token_text(*end) != kTurnEnd;
}

Expected<text::Tokenizer> gguf_tokenizer(const gguf::Metadata& metadata) {
  COHORT_ASSIGN(const text::TokenizerData data, text::tokenizer_data_from_gguf(metadata));
  return text::Tokenizer::from_gguf(data);
}

}  // namespace

Expected<TextModel> load_text_model(const Model& model) {
  const gguf::File* file = model.gguf_file();
  COHORT_ASSIGN(text::Tokenizer tokenizer,
                file != nullptr ? gguf_tokenizer(file->metadata()) : folder_tokenizer(model.folder()->path()));
  if (static_cast<int64_t>(tokenizer.vocab_size()) > model.program().vocabulary) {
    return fail(ErrorCode::corrupt, "the tokenizer has {} tokens; the model's embedding has only {}",
                tokenizer.vocab_size(), model.program().vocabulary);
  }
  TextModel out{std::move(tokenizer), std::nullopt, {}, {}, false};
  if (file != nullptr) {
    COHORT_ASSIGN(const std::string_view source, file->metadata().get_string("tokenizer.chat_template", ""));
    out.chat_template_source = source;
  } else if (model.folder()->chat_template()) {
    out.chat_template_source = *model.folder()->chat_template();
  }
  out.base_model = is_base_model(out);
  if (out.chat_template_source.empty()) return out;
  auto parsed = Template::parse(out.chat_template_source);
  if (parsed) {
    out.chat_template = std::move(*parsed);
  } else {
    out.chat_template_problem = parsed.error().message;
  }
  return out;
}

}  // namespace cohort
