// The components of tokenizer.json: normalizers, pre-tokenizers, decoders and post-processors. Errors name what is
// unsupported.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "cohort/error.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pretokenizer.h"

namespace cohort::text {

/// Each takes the component's JSON value (null: none).
Expected<Normalizer> build_normalizer(const nlohmann::json& value, const TokenizerLimits& limits);
Expected<PreTokenizer> build_pre_tokenizer(const nlohmann::json& value, const TokenizerLimits& limits);
Expected<DecoderConfig> build_decoder(const nlohmann::json& value, const TokenizerLimits& limits);

/// What is put around a single text.
struct PostProcessor {
  std::vector<int32_t> prefix, suffix;
};
Expected<PostProcessor> build_post_processor(const nlohmann::json& value, const TokenizerLimits& limits);

}  // namespace cohort::text
