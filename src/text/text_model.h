// The text side of a model: its tokenizer, its chat template if it has one, and the tokens that end an answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/error.h"
#include "models/model.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

namespace cohort {

struct TextModel {
  text::Tokenizer tokenizer;
  std::optional<Template> chat_template;  // none: the model only continues text
  std::string chat_template_source;
  /// Why a template that the model has cannot be used; empty when it can, or when there is none.
  std::string chat_template_problem;

  /// The model continues texts and was not trained on conversations, as far as its files tell: it has no chat template,
  /// or one whose turns end with <|im_end|> while its texts end with another token (the mark of base models that carry
  /// the ChatML template of their family).
  bool base_model = false;

  std::vector<int32_t> end_tokens() const { return {tokenizer.end_ids().begin(), tokenizer.end_ids().end()}; }
};

/// From GGUF metadata or the folder's JSON files. Errors: a missing or unusable tokenizer (an unusable template is only
/// noted).
Expected<TextModel> load_text_model(const Model& model);

}  // namespace cohort
