// What may come next in a sequence, token by token: how grammars reach the sampler. The engine knows nothing of text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cohort/error.h"

namespace cohort {

/// Where one sequence is. Not thread-safe; different states of one constraint may be used by different threads.
class ConstraintState {
 public:
  virtual ~ConstraintState() = default;
  /// Sets bit t % 64 of mask[t / 64] for every token t that may come next, clears the others. There is one unless
  /// may_end(). Errors: capacity (the constraint takes too much work at this place).
  virtual Expected<void> allowed(std::span<uint64_t> mask) = 0;
  /// The text so far is complete: an end token may come.
  virtual bool may_end() const = 0;
  /// The text so far is complete and nothing can follow.
  virtual bool must_end() const = 0;
  /// `token` was chosen, one that is allowed and ends nothing.
  virtual void advance(int32_t token) = 0;
};

/// Immutable. What a state allows depends on the tokens it was advanced by and on nothing else.
class Constraint {
 public:
  virtual ~Constraint() = default;
  virtual std::unique_ptr<ConstraintState> begin() const = 0;
};

}  // namespace cohort
