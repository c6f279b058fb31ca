#include "text/tokenizer/load.h"

#include <system_error>

#include "base/file.h"
#include "base/result.h"
#include "formats/gguf/gguf.h"
#include "text/tokenizer/gguf_data.h"

namespace cohort::text {
namespace {

/// Empty if there is no such file.
Expected<std::string> read_if_present(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error) ? read_text_file(path) : Expected<std::string>("");
}

Expected<Tokenizer> load_folder(const std::filesystem::path& folder, const std::filesystem::path& file) {
  COHORT_ASSIGN(const std::string tokenizer, read_text_file(file));
  Tokenizer::Companions companions;
  COHORT_ASSIGN(companions.tokenizer_config, read_if_present(folder / "tokenizer_config.json"));
  COHORT_ASSIGN(companions.generation_config, read_if_present(folder / "generation_config.json"));
  COHORT_ASSIGN(companions.model_config, read_if_present(folder / "config.json"));
  return Tokenizer::from_huggingface(tokenizer, companions);
}

Expected<Tokenizer> load_gguf(const std::filesystem::path& path) {
  COHORT_ASSIGN(const gguf::File file, gguf::File::open(path));
  COHORT_ASSIGN(const TokenizerData data, tokenizer_data_from_gguf(file.metadata()));
  return Tokenizer::from_gguf(data);
}

}  // namespace

Expected<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  std::error_code error;
  auto result = std::filesystem::is_directory(path, error) ? load_folder(path, path / "tokenizer.json")
                : path.extension() == ".json"              ? load_folder(path.parent_path(), path)
                                                           : load_gguf(path);
  if (!result) {
    return fail(result.error().code, "{}: {}", path.string(), result.error().message);
  }
  return result;
}

}  // namespace cohort::text
