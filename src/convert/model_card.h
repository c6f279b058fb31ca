// What a checkpoint's README.md says about its origin: the YAML front matter of a Hugging Face model card.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"
#include "formats/gguf/metadata.h"

namespace cohort::convert_detail {

struct ModelCard {
  std::string license, license_name, license_link;
  std::vector<std::string> base_models;  // "organisation/model"
};

/// Reads the keys above from the lines between the first two "---": scalars, quoted or not, and lists in both of YAML's
/// forms. Everything else is skipped; text without front matter gives an empty card.
ModelCard parse_model_card(std::string_view text);

/// Adds general.license* and general.base_model.* where `out` does not have them yet.
Expected<void> add_model_card(const ModelCard& card, gguf::Metadata& out);

}  // namespace cohort::convert_detail
