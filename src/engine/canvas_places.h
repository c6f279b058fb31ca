// Places in which a device keeps what it thinks of canvases (kernels/canvas_reader.h). A sequence that denoises has
// one.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace cohort {

class CanvasPlaces {
 public:
  /// One of the places, or none; gives it back when it goes.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept { swap(other); }
    Place& operator=(Place&& other) noexcept {
      Place(std::move(other)).swap(*this);
      return *this;
    }
    ~Place() {
      if (free_ != nullptr) free_->push_back(index_);
    }
    bool taken() const { return free_ != nullptr; }
    int32_t index() const { return index_; }

   private:
    friend class CanvasPlaces;
    Place(std::vector<int32_t>& free, int32_t index) : free_(&free), index_(index) {}
    void swap(Place& other) noexcept {
      std::swap(free_, other.free_);
      std::swap(index_, other.index_);
    }
    std::vector<int32_t>* free_ = nullptr;
    int32_t index_ = -1;
  };

  CanvasPlaces() = default;
  CanvasPlaces(const CanvasPlaces&) = delete;  // places point here
  CanvasPlaces& operator=(const CanvasPlaces&) = delete;

  /// Its places are 0 to count - 1; none may be taken.
  void resize(int32_t count) {
    free_.clear();
    for (int32_t i = count; i > 0; --i) free_.push_back(i - 1);
  }
  size_t free() const { return free_.size(); }
  /// One must be free.
  Place take() {
    const int32_t index = free_.back();
    free_.pop_back();
    return {free_, index};
  }

 private:
  std::vector<int32_t> free_;
};

}  // namespace cohort
