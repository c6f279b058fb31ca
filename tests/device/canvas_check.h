// Block diffusion on the device: bits, tokens and speed.
#pragma once

#include <string>
#include <vector>

namespace cohort::device_check {

/// Programs with canvases and random weights: what the device makes of them against the scalar reference, bit by bit
/// (logits; each row's reading and what is thought of it), alone, in company and in several submissions. False when
/// anything differs; then the first operations whose values do are printed. parts: only programs whose name has one.
bool check_canvas_bits(const std::vector<std::string>& parts);

/// The model (a file, or the name of a synthetic one, which is written to the current folder) on the device and on the
/// CPU through the engine: the tokens of 1 and 4 streams, together and one by one, are the same; and how long a step
/// takes at each of `counts` streams, by kind of kernel on the device. False when a token differs.
bool check_canvas_tokens(const std::string& model, const std::vector<int>& counts);

}  // namespace cohort::device_check
