#include "kernels/backend.h"

#include "base/result.h"

namespace cohort {

Expected<void> Backend::observe(MatrixInputObserver*) {
  return fail(ErrorCode::unsupported, "{} cannot show what enters its matrices; use the CPU (--device cpu)",
              description());
}

}  // namespace cohort
