// Feeds arbitrary bytes to the safetensors reader; what it accepts must be safe to read to the last byte.
#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/safetensors/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto file = cohort::safetensors::File::from_bytes(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file) {
    if (file.error().message.empty()) __builtin_trap();
    return 0;
  }
  unsigned sum = 0;
  const std::byte* end = nullptr;
  for (const auto& tensor : file->tensors()) {
    if (end != nullptr && tensor.data < end) __builtin_trap();  // sorted and disjoint
    end = tensor.data + tensor.bytes;
    for (size_t i = 0; i < tensor.bytes; ++i) sum += static_cast<unsigned>(tensor.data[i]);
    if (static_cast<size_t>(tensor.values()) * cohort::safetensors::dtype_bytes(tensor.dtype) != tensor.bytes)
      __builtin_trap();
  }
  volatile unsigned keep = sum;
  static_cast<void>(keep);
  return 0;
}
