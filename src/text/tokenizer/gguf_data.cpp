#include "text/tokenizer/gguf_data.h"

#include <variant>

#include "base/result.h"

namespace cohort::text {
namespace {

class Reader {
 public:
  explicit Reader(const gguf::Metadata& metadata) : metadata_(metadata) {}

  Expected<void> strings(const char* key, std::vector<std::string>& out) const {
    if (metadata_.contains(key)) {
      COHORT_ASSIGN(const gguf::StringArray* array, metadata_.get_string_array(key));
      out.assign(array->begin(), array->end());
    }
    return {};
  }

  Expected<void> string(const char* key, std::string& out) const {
    COHORT_ASSIGN(out, metadata_.get_string(key, out));
    return {};
  }

  Expected<void> id(const char* key, std::optional<int32_t>& out) const {
    // Some converters write -1 (as an unsigned number: 4294967295) for "none".
    const gguf::Value* value = metadata_.find(key);
    if (value != nullptr) {
      COHORT_ASSIGN(const int64_t number, metadata_.get_i64(key));
      if (number >= 0 && number < INT32_MAX) {
        out = static_cast<int32_t>(number);
      }
    }
    return {};
  }

  Expected<void> flag(const char* key, std::optional<bool>& out) const {
    if (metadata_.contains(key)) {
      COHORT_ASSIGN(out, metadata_.get_bool(key));
    }
    return {};
  }

  Expected<void> types(const char* key, std::vector<int32_t>& out) const {
    if (metadata_.contains(key)) {
      COHORT_ASSIGN(const std::vector<int64_t> array, metadata_.get_int_array(key));
      for (const int64_t type : array) {
        out.push_back(type < 0 || type > 127 ? -1 : static_cast<int32_t>(type));
      }
    }
    return {};
  }

  Expected<void> scores(const char* key, std::vector<float>& out) const {
    const gguf::Value* value = metadata_.find(key);
    if (value == nullptr) {
      return {};
    }
    if (value->type() == gguf::ValueType::array && value->element_type() == gguf::ValueType::i32) {
      const auto& array = std::get<std::vector<int32_t>>(value->variant());
      out.assign(array.begin(), array.end());
      return {};
    }
    COHORT_ASSIGN(out, metadata_.get_f32_array(key));
    return {};
  }

  Expected<void> bytes(const char* key, std::string& out) const {
    if (metadata_.contains(key)) {
      COHORT_ASSIGN(const std::vector<int64_t> array, metadata_.get_int_array(key));
      for (const int64_t byte : array) {
        out.push_back(static_cast<char>(byte));
      }
    }
    return {};
  }

 private:
  const gguf::Metadata& metadata_;
};

}  // namespace

Expected<TokenizerData> tokenizer_data_from_gguf(const gguf::Metadata& metadata) {
  if (!metadata.contains("tokenizer.ggml.model")) {
    return fail(ErrorCode::not_found, "the file has no tokenizer (no key tokenizer.ggml.model)");
  }
  const Reader read(metadata);
  TokenizerData data;
  COHORT_TRY(read.string("tokenizer.ggml.model", data.model));
  COHORT_TRY(read.string("tokenizer.ggml.pre", data.pre));
  COHORT_TRY(read.strings("tokenizer.ggml.tokens", data.tokens));
  COHORT_TRY(read.scores("tokenizer.ggml.scores", data.scores));
  COHORT_TRY(read.types("tokenizer.ggml.token_type", data.token_types));
  COHORT_TRY(read.strings("tokenizer.ggml.merges", data.merges));
  COHORT_TRY(read.bytes("tokenizer.ggml.precompiled_charsmap", data.precompiled_charsmap));
  COHORT_TRY(read.id("tokenizer.ggml.bos_token_id", data.bos_id));
  COHORT_TRY(read.id("tokenizer.ggml.eos_token_id", data.eos_id));
  COHORT_TRY(read.id("tokenizer.ggml.eot_token_id", data.eot_id));
  COHORT_TRY(read.id("tokenizer.ggml.eom_token_id", data.eom_id));
  COHORT_TRY(read.id("tokenizer.ggml.unknown_token_id", data.unk_id));
  COHORT_TRY(read.id("tokenizer.ggml.padding_token_id", data.pad_id));
  COHORT_TRY(read.flag("tokenizer.ggml.add_bos_token", data.add_bos));
  COHORT_TRY(read.flag("tokenizer.ggml.add_eos_token", data.add_eos));
  COHORT_TRY(read.flag("tokenizer.ggml.add_space_prefix", data.add_space_prefix));
  COHORT_TRY(read.flag("tokenizer.ggml.remove_extra_whitespaces", data.remove_extra_whitespaces));
  return data;
}

}  // namespace cohort::text
