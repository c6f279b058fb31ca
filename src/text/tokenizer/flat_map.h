// A hash table from 64-bit keys to small values that is built once and then only read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::text {

template <class Value>
class FlatMap {
 public:
  void reserve(size_t count) {
    size_t slots = 16;
    while (slots < 2 * count) {
      slots *= 2;
    }
    slots_.assign(slots, Slot{});
    mask_ = slots - 1;
  }

  /// The value of the key, or nullptr.
  const Value* find(uint64_t key) const {
    if (slots_.empty()) {
      return nullptr;
    }
    for (size_t i = hash(key) & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.key == key) {
        return &slot.value;
      }
      if (slot.key == kEmpty) {
        return nullptr;
      }
    }
  }

  /// Adds the key or replaces its value. At most the reserved number of keys.
  void set(uint64_t key, const Value& value) {
    size_t i = hash(key) & mask_;
    while (slots_[i].key != kEmpty && slots_[i].key != key) {
      i = (i + 1) & mask_;
    }
    slots_[i] = {key, value};
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Value value{};
  };
  static uint64_t hash(uint64_t key) {
    key *= 0x9E3779B97F4A7C15ull;
    return key ^ (key >> 32);
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

}  // namespace cohort::text
