// Layers of which the host computes experts: what it is told, and what it brings.
//
// The host and the device meet in mapped memory of the host, inside of one launch of a step. The part kernel writes the
// layer's rows and routes there and then says that it did; the experts that are on the device run beside the host; the
// bring kernel waits until the host says that its results are there. What is said is the number of the step, so nothing
// has to be reset: a layer's words hold the last step that came by.
#pragma once

#include "kernels/cuda/args.h"

namespace cohort::cuda {

/// Mapped memory that one layer after the other uses.
struct MeetingPlace {
  int32_t* arrived = nullptr;  // [layers][kMeetingWords] the last step whose inputs are there
  int32_t* done = nullptr;     // [layers][kMeetingWords] the last step whose results are there
  int32_t* chosen = nullptr;   // [rows * top_k] the experts of the routes
  float* input = nullptr;      // [rows, K]
  int32_t* routes = nullptr;   // how many the host computed, then which
  float* results = nullptr;    // [those, outputs]
};
inline constexpr int kMeetingWords = 16;  // a cache line of the host for each word

/// The entries of experts that are on the device, under their places there, and what the host needs for the others.
struct PartArgs {
  Step step;
  Group all{}, here{};  // `here` shares the slots and has entries of its own; without entries: all are the host's
  const int32_t* place = nullptr;  // [experts] on the device: the place, or -1
  int32_t cap = 32;
  Rows input;
  int32_t width = 0;
  int32_t* arrivals = nullptr;  // [1] zero between launches
  int32_t* arrived = nullptr;   // mapped, as the next two
  int32_t* chosen = nullptr;
  float* told = nullptr;  // the input
};
void launch_part(const PartArgs& args, int sms, cudaStream_t stream);

/// The host's results to their routes, once they are there.
struct BringArgs {
  Step step;
  const int32_t* done = nullptr;  // mapped, as the next two
  const int32_t* routes = nullptr;
  const float* results = nullptr;
  int32_t* released = nullptr;  // [2] of this visit, on the device: the last step whose results are there, how many
  int32_t width = 0;
  Rows out;  // by route
};
void launch_bring(const BringArgs& args, int sms, cudaStream_t stream);

}  // namespace cohort::cuda
