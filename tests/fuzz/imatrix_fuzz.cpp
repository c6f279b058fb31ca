// Importance matrices of both kinds: what is accepted has the sizes that it says, and no mean is negative or no number.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "formats/imatrix/imatrix.h"

namespace {

using namespace cohort;

/// A file in memory, since the reader maps files.
const std::string& path_of_bytes(const uint8_t* data, size_t size) {
  static const int file = memfd_create("imatrix", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  return path;
}

void check(const ImportanceMatrix& matrix) {
  for (const auto& [name, entry] : matrix.entries) {
    if (matrix.find(name) != &entry) __builtin_trap();
    if (entry.cols < 1 || entry.experts < 1) __builtin_trap();
    if (entry.square_sums.size() != static_cast<size_t>(entry.cols * entry.experts)) __builtin_trap();
    if (entry.counts.size() != static_cast<size_t>(entry.experts)) __builtin_trap();
    for (int64_t expert = 0; expert < entry.experts; ++expert) {
      for (const float mean : entry.means(expert)) {
        if (std::isnan(mean) || mean < 0) __builtin_trap();
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto matrix = read_importance(path_of_bytes(data, size));
  if (!matrix) {
    if (matrix.error().message.empty()) __builtin_trap();
    return 0;
  }
  check(*matrix);
  return 0;
}
