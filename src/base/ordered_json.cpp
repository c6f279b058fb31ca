#include "base/ordered_json.h"

#include <nlohmann/json.hpp>

#include "base/json_builder.h"
#include "base/result.h"

namespace cohort {
namespace {

using Json = nlohmann::ordered_json;

/// Keeps every name, without looking whether it was there: that would take long for large objects.
class OrderedBuilder : public JsonBuilder<Json> {
 public:
  bool key(std::string& name) {
    set_slot(&object().emplace_back(std::move(name), nullptr).second);
    return true;
  }
};

}  // namespace

Expected<Json> parse_ordered_json(std::string_view text, std::string_view name) {
  OrderedBuilder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder))
    return fail(ErrorCode::corrupt, "'{}': {}", name, builder.error());
  return builder.take();
}

}  // namespace cohort
