// Feeds arbitrary bytes to the GGUF reader; what it accepts must be safe to read to the last byte.
#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/gguf/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto file = cohort::gguf::File::from_bytes(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file) {
    if (file.error().message.empty()) __builtin_trap();
    return 0;
  }
  unsigned sum = 0;
  for (const auto& tensor : file->tensors()) {
    for (size_t i = 0; i < tensor.bytes; ++i) sum += static_cast<unsigned>(tensor.data[i]);
    if (file->find_tensor(tensor.name) != &tensor) __builtin_trap();
  }
  for (const auto& [key, value] : file->metadata().entries()) {
    if (file->metadata().find(key) != &value) __builtin_trap();
    sum += static_cast<unsigned>(value.describe().size());
    sum += file->metadata().get_i64(key).has_value();
    sum += file->metadata().get_int_array(key).has_value();
  }
  volatile unsigned keep = sum;
  static_cast<void>(keep);
  return 0;
}
