#include "engine/tuning_file.h"

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/result.h"
#include "formats/model_files.h"

namespace cohort {
namespace {

constexpr int64_t kVersion = 1;
constexpr size_t kMaxFileBytes = size_t{1} << 20;

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    return colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return "";
}

Expected<TuningChoice> read_choice(const nlohmann::json& json, const std::string& where) {
  const JsonObject object(json, where);
  TuningChoice choice{};
  COHORT_ASSIGN(const std::string name, object.get_string("type"));
  COHORT_ASSIGN(const int64_t rows, object.get_int("rows"));
  COHORT_ASSIGN(choice.tuning.interleave, object.get_bool("interleave"));
  COHORT_ASSIGN(const int64_t bytes, object.get_int("job_bytes"));
  const TypeInfo* type = find_type(name);
  if (type == nullptr || !type->quantised)
    return fail(ErrorCode::corrupt, "{}: '{}' is no quantised type", where, name);
  if (rows < 1 || rows > INT32_MAX) return fail(ErrorCode::corrupt, "{}: {} rows", where, rows);
  if (bytes < cpu::kMinJobBytes || bytes > cpu::kMaxJobBytes) {
    return fail(ErrorCode::corrupt, "{}: jobs of {} bytes; expected {} to {}", where, bytes, cpu::kMinJobBytes,
                cpu::kMaxJobBytes);
  }
  choice.gate_up = type->type;
  choice.rows = static_cast<int32_t>(rows);
  choice.tuning.job_bytes = static_cast<int32_t>(bytes);
  return choice;
}

}  // namespace

TuningKey tuning_key(Isa isa, int threads) {
  return {processor_name(), isa, threads};
}

std::filesystem::path tuning_path(const TuningKey& key) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (cache != nullptr && *cache == '/') {
    folder = cache;
  } else if (home != nullptr && *home != '\0') {
    folder = std::filesystem::path(home) / ".cache";
  } else {
    return {};
  }
  return folder / "cohort" / fmt::format("tuning-{}-{}.json", isa_name(key.isa), key.threads);
}

Expected<void> prepare_tuning(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) return fail(ErrorCode::io, "cannot make the folder {}: {}", path.parent_path().string(), error.message());
  return check_output_file(path, {});
}

Expected<void> save_tuning(const std::filesystem::path& path, const TuningKey& key,
                           const std::vector<TuningChoice>& choices) {
  nlohmann::ordered_json json{{"version", kVersion},
                              {"processor", key.processor},
                              {"isa", isa_name(key.isa)},
                              {"threads", key.threads},
                              {"choices", nlohmann::ordered_json::array()}};
  for (const TuningChoice& c : choices) {
    json["choices"].push_back({{"type", type_info(c.gate_up).name},
                               {"rows", c.rows},
                               {"interleave", c.tuning.interleave},
                               {"job_bytes", c.tuning.job_bytes}});
  }
  COHORT_TRY(prepare_tuning(path));
  COHORT_ASSIGN(auto writer, AtomicFileWriter::create(path));
  const std::string text = json.dump(1) + "\n";
  COHORT_TRY(writer.write(std::as_bytes(std::span(text))));
  return writer.commit();
}

Expected<cpu::TuningTable> load_tuning(const std::filesystem::path& path, const TuningKey& key) {
  COHORT_ASSIGN(const nlohmann::json json, read_json_file(path, kMaxFileBytes));
  const std::string where = path.string();
  const JsonObject object(json, where);
  COHORT_ASSIGN(const int64_t version, object.get_int("version"));
  if (version != kVersion) return fail(ErrorCode::corrupt, "{} has version {}; expected {}", where, version, kVersion);
  COHORT_ASSIGN(const std::string processor, object.get_string("processor"));
  COHORT_ASSIGN(const std::string isa, object.get_string("isa"));
  COHORT_ASSIGN(const int64_t threads, object.get_int("threads"));
  if (processor != key.processor || isa != isa_name(key.isa) || threads != key.threads) {
    return fail(ErrorCode::corrupt, "{} was measured on '{}' with {} and {} threads; this is '{}' with {} and {}",
                where, processor, isa, threads, key.processor, isa_name(key.isa), key.threads);
  }
  const nlohmann::json* choices = object.find("choices");
  if (choices == nullptr || !choices->is_array()) return fail(ErrorCode::corrupt, "{} has no list 'choices'", where);
  cpu::TuningTable table;
  for (size_t i = 0; i < choices->size(); ++i) {
    COHORT_ASSIGN(const TuningChoice choice, read_choice((*choices)[i], fmt::format("{}: choice {}", where, i)));
    table.set(cpu::layout_of(choice.gate_up), choice.rows, choice.tuning);
  }
  return table;
}

cpu::TuningTable saved_tuning(Isa isa, int threads) {
  const TuningKey key = tuning_key(isa, threads);
  const std::filesystem::path path = tuning_path(key);
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return {};
  auto table = load_tuning(path, key);
  if (table) return *table;
  log::warning("what `cohort tune` saved is ignored: {} (run it again)", table.error().message);
  return {};
}

}  // namespace cohort
