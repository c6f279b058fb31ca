// One timeline: its tokens, how far the cache has them, its pages and how it samples.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "cohort/engine.h"
#include "engine/canvas.h"
#include "engine/canvas_places.h"
#include "engine/window_chooser.h"
#include "kv/prefix_tree.h"

namespace cohort {

struct Sequence {
  SequenceId id = 0;
  SequenceRequest request;
  double arrival = 0;  // seconds of any clock
  double turn = 0;     // who has the lower one goes first, of equal ones the lower id; the roster sets it
  std::unique_ptr<ConstraintState> constraint;  // null: none
  std::vector<int32_t> tokens;                  // prompt, then what was generated
  int32_t cached = 0;                           // positions whose K and V are in the cache
  std::vector<int32_t> pages;
  int32_t node = PrefixTree::kRoot;  // of the last page that is in the prefix tree
  int32_t published = 0;             // pages that are
  int32_t reused = 0;                // positions of the prompt that came from the tree
  std::vector<int32_t> guesses;      // of the tokens after those, to be checked in the next step
  HitRate hits;
  int32_t canvas_length = 0;       // 0: one token after another
  std::unique_ptr<Canvas> canvas;  // that is being denoised, behind the tokens; it outlives a preemption unless
  CanvasPlaces::Place place;       // a device keeps what is thought of it, here: then it begins anew, to the same end

  int32_t prompt_size() const { return static_cast<int32_t>(request.prompt.size()); }
  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  int32_t generated() const { return size() - prompt_size(); }
  bool before(const Sequence& other) const { return std::tie(turn, id) < std::tie(other.turn, other.id); }
  /// Rows that are to run before the next token can be sampled.
  int32_t missing() const { return size() - cached; }
  /// Rows of the next step at most: what is missing, or the canvas behind it, which runs as a whole.
  int32_t runnable() const { return missing() > 0 ? missing() : canvas_length; }
  bool denoising() const { return canvas_length > 0 && missing() == 0; }
  /// False for prompts, and for what was preempted and is read again; a finished canvas is read as a prompt is.
  bool decoding() const { return canvas_length > 0 ? denoising() : generated() > 0 && missing() == 1; }
  /// Positions that it needs to go on.
  int64_t next_positions() const { return int64_t{size()} + std::max(1, canvas_length); }
};

}  // namespace cohort
