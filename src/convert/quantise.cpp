#include "convert/quantise.h"

#include <algorithm>
#include <deque>
#include <regex>
#include <system_error>

#include "base/result.h"
#include "base/thread_team.h"
#include "convert/encode.h"
#include "convert/plan.h"
#include "formats/gguf/gguf.h"
#include "formats/imatrix/imatrix.h"
#include "formats/model_files.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using convert_detail::PlannedTensor;
using gguf::Value;

/// Keys that belong to a part of a split file, not to the model.
bool is_split_key(const std::string& key) {
  return key.starts_with("split.");
}

/// Keys that are written anew.
bool is_replaced_key(const std::string& key) {
  return is_split_key(key) || key == "general.file_type" || key == "general.quantization_version" ||
         key == "general.alignment" || key.starts_with("quantize.imatrix.");
}

struct Override {
  std::regex pattern;
  TensorType type;
};

Expected<std::vector<Override>> compile_overrides(const QuantiseOptions& options) {
  std::vector<Override> overrides;
  for (const auto& [pattern, type] : options.overrides) {
    try {
      overrides.push_back({std::regex(pattern, std::regex::ECMAScript | std::regex::optimize), type});
    } catch (const std::regex_error& error) {
      return fail(ErrorCode::invalid_argument, "'{}' is no regular expression: {}", pattern, error.what());
    }
  }
  return overrides;
}

class Quantiser {
 public:
  Quantiser(const gguf::File& file, fs::path output, const QuantiseOptions& options)
      : file_(file), inputs_(model_files(file.path())), output_(std::move(output)), options_(options) {
    if (!options.importance.empty()) inputs_.push_back(options.importance);
  }

  Expected<QuantiseReport> run() {
    if (!options_.importance.empty()) {
      COHORT_ASSIGN(importance_, read_importance(options_.importance));
    }
    COHORT_ASSIGN(overrides_, compile_overrides(options_));
    model_ = mix_model(file_.metadata(), file_.find_tensor("output.weight") == nullptr);
    model_.importance = importance_.has_value();
    used_overrides_.resize(overrides_.size());
    for (const gguf::TensorInfo& tensor : file_.tensors()) COHORT_TRY(plan(tensor));
    COHORT_TRY(check_plan());
    for (const PlannedTensor& tensor : plan_) {
      report_.out_bytes += row_bytes(tensor.type, tensor.cols) * static_cast<size_t>(tensor.total_rows());
    }
    report_.bits_per_weight = 8.0 * static_cast<double>(report_.out_bytes) / static_cast<double>(report_.parameters);
    note_changes();
    if (!options_.dry_run) COHORT_TRY(write());
    return std::move(report_);
  }

 private:
  // --- planning ---------------------------------------------------------------------------------------------------
  std::optional<TensorType> overridden(const std::string& name) {
    for (size_t i = 0; i < overrides_.size(); ++i) {
      if (!std::regex_search(name, overrides_[i].pattern)) continue;
      used_overrides_[i] = true;
      return overrides_[i].type;
    }
    return std::nullopt;
  }

  std::optional<TensorType> wanted_type(const gguf::TensorInfo& tensor) {
    if (!type_info(tensor.type).weight || tensor.shape.size() < 2) return std::nullopt;
    if (const auto type = overridden(tensor.name)) return type;
    // Routers decide everything after them and are tiny.
    if (tensor.name.find("ffn_gate_inp") != std::string::npos && !type_info(tensor.type).quantised) {
      return TensorType::f32;
    }
    if (!is_quantised_by_mixes(tensor.name, tensor.shape)) return std::nullopt;
    const bool head = tensor.name == "output.weight" || (model_.tied && tensor.name == "token_embd.weight");
    if (head && options_.head) return options_.head;
    if (tensor.name == "token_embd.weight" && options_.embedding) return options_.embedding;
    if (options_.pure) return options_.mix->base;
    return mix_type(*options_.mix, model_, options_.attention, tensor.name);
  }

  Expected<void> plan(const gguf::TensorInfo& tensor) {
    PlannedTensor planned;
    planned.name = tensor.name;
    planned.source_type = tensor.type;
    planned.shape = tensor.shape;
    planned.cols = tensor.shape.empty() ? 1 : tensor.shape[0];
    planned.type = tensor.type;
    const int64_t rows = tensor.values() / planned.cols;
    if (const auto wanted = wanted_type(tensor)) {
      planned.type = fitting_type(*wanted, planned.cols);
      if (planned.type != *wanted) {
        note(tensor.name,
             fmt::format("{} instead of {}: rows of {} values are no multiple of {}", type_info(planned.type).name,
                         type_info(*wanted).name, planned.cols, type_info(*wanted).block_values));
      }
    }
    const int64_t experts = tensor.shape.size() == 3 ? tensor.shape[2] : 1;
    planned.rows = rows / experts;
    const size_t slice = row_bytes(tensor.type, planned.cols) * static_cast<size_t>(planned.rows);
    for (int64_t e = 0; e < experts; ++e) planned.slices.push_back(tensor.data + slice * static_cast<size_t>(e));
    COHORT_TRY(find_importance(planned, experts));
    report_.parameters += static_cast<uint64_t>(tensor.values());
    report_.in_bytes += tensor.bytes;
    report_.tensors.push_back({tensor.name, tensor.shape, tensor.type, planned.type, !planned.importance.empty()});
    plan_.push_back(std::move(planned));
    return {};
  }

  Expected<void> find_importance(PlannedTensor& planned, int64_t experts) {
    if (!importance_ || !type_info(planned.type).quantised || planned.type == planned.source_type) return {};
    const Importance* entry = importance_->find(planned.name);
    if (entry == nullptr) return {};
    // The older files say only how many values there are in all.
    const bool flat = entry->experts == 1 && entry->cols == planned.cols * experts;
    if (!flat && (entry->cols != planned.cols || (entry->experts != experts && entry->experts != 1))) {
      return fail(
          ErrorCode::invalid_argument,
          "the importance matrix '{}' is of another model: '{}' has {} columns and {} experts there, {} and {} here",
          options_.importance.string(), planned.name, entry->cols, entry->experts, planned.cols, experts);
    }
    std::vector<int64_t> without;
    for (int64_t e = 0; e < experts; ++e) {
      auto& means = means_.emplace_back();
      if (flat) {
        const auto all = entry->means(0);
        means.assign(all.begin() + e * planned.cols, all.begin() + (e + 1) * planned.cols);
      } else {
        means = entry->means(entry->experts == 1 ? 0 : e);
      }
      const bool known = std::ranges::any_of(means, [](float mean) { return mean > 0; });
      planned.importance.push_back(known ? means.data() : nullptr);
      if (!known) without.push_back(e);
    }
    if (static_cast<int64_t>(without.size()) == experts) planned.importance.clear();
    if (!without.empty()) {
      std::string some;
      for (size_t i = 0; i < std::min<size_t>(without.size(), 8); ++i) {
        some += fmt::format("{}{}", i == 0 ? "" : ", ", without[i]);
      }
      note(planned.name, fmt::format("{} of {} experts were never routed to and have no importance ({}{})",
                                     without.size(), experts, some, without.size() > 8 ? ", ..." : ""));
    }
    return {};
  }

  Expected<void> check_plan() {
    size_t found = 0;
    for (const PlannedTensor& tensor : plan_) {
      found += tensor.importance.empty() ? 0 : 1;
      if (tensor.type == tensor.source_type) continue;
      if (!has_encoder(tensor.type)) {
        return fail(ErrorCode::unsupported, "'{}' should become {}, which cannot be encoded", tensor.name,
                    type_info(tensor.type).name);
      }
      if (needs_importance(tensor.type) && tensor.importance.empty() && !options_.allow_no_importance) {
        return fail(
            ErrorCode::invalid_argument,
            "'{}' should become {}, whose few bits must go where they matter, but {}; collect an importance matrix "
            "with cohort imatrix and give it with --imatrix, or take the loss with --no-imatrix-needed",
            tensor.name, type_info(tensor.type).name,
            importance_ ? "the importance matrix has no entry for it" : "there is no importance matrix");
      }
    }
    if (importance_ && found == 0) {
      return fail(ErrorCode::invalid_argument,
                  "none of the {} entries of '{}' names a matrix that is to be encoded; is it of another model?",
                  importance_->entries.size(), options_.importance.string());
    }
    for (size_t i = 0; i < overrides_.size(); ++i) {
      if (used_overrides_[i]) continue;
      return fail(ErrorCode::invalid_argument, "no matrix has a name that matches '{}'", options_.overrides[i].first);
    }
    return {};
  }

  /// What is true of several tensors is said once.
  void note(const std::string& name, std::string text) {
    const auto known = std::ranges::find(notes_, text, &Note::text);
    if (known == notes_.end()) {
      notes_.push_back({std::move(text), name, 1});
    } else {
      ++known->tensors;
    }
  }

  void note_changes() {
    for (const Note& note : notes_) {
      const std::string more = note.tensors > 1 ? fmt::format(" and {} more", note.tensors - 1) : std::string();
      report_.notes.push_back(fmt::format("{}{}: {}", note.first, more, note.text));
    }
    size_t again = 0;
    for (const PlannedTensor& tensor : plan_) {
      again += tensor.type != tensor.source_type && type_info(tensor.source_type).quantised ? 1 : 0;
    }
    if (again > 0) {
      report_.notes.push_back(fmt::format(
          "{} matrices were quantised already: their errors add up; start from the f32, f16 or bf16 file where you can",
          again));
    }
  }

  // --- writing ----------------------------------------------------------------------------------------------------
  struct Part {
    size_t first, last;
  };

  std::vector<Part> parts() const {
    std::vector<Part> parts{{0, 0}};
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan_.size(); ++i) {
      const uint64_t size = row_bytes(plan_[i].type, plan_[i].cols) * static_cast<size_t>(plan_[i].total_rows());
      const bool full =
          (options_.split_bytes > 0 && bytes + size > options_.split_bytes) ||
          (options_.split_tensors > 0 && static_cast<int64_t>(i - parts.back().first) >= options_.split_tensors);
      if (full && parts.back().last > parts.back().first) {
        parts.push_back({i, i});
        bytes = 0;
      }
      bytes += size;
      parts.back().last = i + 1;
    }
    return parts;
  }

  fs::path part_path(size_t part, size_t count) const {
    if (count == 1) return output_;
    fs::path stem = output_;
    if (stem.extension() == ".gguf") stem.replace_extension();
    return stem.string() + fmt::format("-{:05}-of-{:05}.gguf", part + 1, count);
  }

  Expected<void> add_metadata(gguf::Metadata& metadata, size_t part, size_t count) const {
    if (part == 0) {
      for (const auto& [key, value] : file_.metadata().entries()) {
        if (!is_replaced_key(key)) COHORT_TRY(metadata.add(key, value));
      }
      COHORT_TRY(metadata.add("general.file_type", Value(options_.mix->file_type)));
      COHORT_TRY(metadata.add("general.quantization_version", Value(uint32_t{2})));
      if (importance_) {
        const std::string dataset = importance_->datasets.empty() ? std::string() : importance_->datasets.front();
        COHORT_TRY(metadata.add("quantize.imatrix.file", Value(options_.importance.filename().string())));
        COHORT_TRY(metadata.add("quantize.imatrix.dataset", Value(dataset)));
        COHORT_TRY(
            metadata.add("quantize.imatrix.entries_count", Value(static_cast<uint32_t>(importance_->entries.size()))));
        COHORT_TRY(metadata.add("quantize.imatrix.chunks_count", Value(importance_->chunks)));
      }
    }
    if (count > 1) {
      COHORT_TRY(metadata.add("split.no", Value(static_cast<uint16_t>(part))));
      COHORT_TRY(metadata.add("split.count", Value(static_cast<uint16_t>(count))));
      COHORT_TRY(metadata.add("split.tensors.count", Value(static_cast<int32_t>(plan_.size()))));
    }
    return {};
  }

  Expected<void> check_room(const fs::path& path, uint64_t needed) const {
    COHORT_TRY(check_output_file(path, inputs_));
    std::error_code error;
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    const auto space = fs::space(folder, error);
    if (!error && space.available < needed) {
      return fail(ErrorCode::capacity, "'{}' needs {} bytes, but only {} are free in '{}'", path.string(), needed,
                  space.available, folder.string());
    }
    return {};
  }

  Expected<void> write() {
    const std::vector<Part> all = parts();
    if (all.size() > 65535) {
      return fail(ErrorCode::invalid_argument,
                  "{} files would be needed; at most 65535 can be numbered (allow larger "
                  "ones with --split-max-size)",
                  all.size());
    }
    std::vector<gguf::Writer> writers;
    uint64_t total = 0;
    for (size_t p = 0; p < all.size(); ++p) {
      report_.files.push_back(part_path(p, all.size()));
      COHORT_TRY(check_room(report_.files.back(), 0));
      COHORT_ASSIGN(auto writer, gguf::Writer::create(report_.files.back(), file_.alignment()));
      COHORT_TRY(add_metadata(writer.metadata(), p, all.size()));
      for (size_t i = all[p].first; i < all[p].last; ++i) {
        COHORT_TRY(writer.add_tensor(plan_[i].name, plan_[i].type, plan_[i].shape));
      }
      total += writer.total_bytes();
      writers.push_back(std::move(writer));
    }
    COHORT_TRY(check_room(report_.files.front(), total));
    ConvertProgress progress;
    progress.total_bytes = report_.out_bytes;
    ThreadTeam team(std::max(1, options_.jobs));
    for (size_t p = 0; p < all.size(); ++p) {
      COHORT_TRY(writers[p].begin_data());
      for (size_t i = all[p].first; i < all[p].last; ++i) {
        COHORT_TRY(convert_detail::write_tensor(plan_[i], writers[p], team, {options_.progress, options_.cancelled},
                                                progress));
      }
    }
    // The first part is what people open: it appears last.
    for (size_t p = all.size(); p-- > 0;) COHORT_TRY(writers[p].commit());
    return {};
  }

  const gguf::File& file_;
  std::vector<fs::path> inputs_;  // what is read, and so never written
  fs::path output_;
  const QuantiseOptions& options_;
  MixModel model_;
  std::optional<ImportanceMatrix> importance_;
  std::deque<std::vector<float>> means_;
  std::vector<Override> overrides_;
  std::vector<bool> used_overrides_;
  std::vector<PlannedTensor> plan_;
  struct Note {
    std::string text, first;
    size_t tensors;
  };
  std::vector<Note> notes_;
  QuantiseReport report_;
};

}  // namespace

Expected<QuantiseReport> quantise(const fs::path& input, const fs::path& output, const QuantiseOptions& options) {
  if (!output.has_filename() && !options.dry_run)
    return fail(ErrorCode::invalid_argument, "the output file has no name: '{}'", output.string());
  std::error_code ignored;
  if (fs::is_directory(input, ignored)) {
    return fail(ErrorCode::invalid_argument, "'{}' is a folder; convert it to a GGUF file first (cohort convert)",
                input.string());
  }
  COHORT_ASSIGN(const auto file, gguf::File::open(input));
  COHORT_ASSIGN(const std::string_view type, file.metadata().get_string("general.type", "model"));
  if (type == "imatrix" || file.tensors().empty()) {
    return fail(ErrorCode::invalid_argument, "'{}' holds no model: general.type is '{}', with {} tensors",
                input.string(), type, file.tensors().size());
  }
  return Quantiser(file, output, options).run();
}

}  // namespace cohort
