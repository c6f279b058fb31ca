// Values in bytes that need not be aligned, in the byte order of this machine (little endian, as the files).
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace cohort {

template <class T>
void store(std::byte* to, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(to, &value, sizeof value);
}

template <class T>
T load(const std::byte* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace cohort
