// The oracle as a backend: runs a program operation by operation, rows one after another (or given to threads: rows are
// independent).
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace cohort {

struct ReferenceOptions {
  int threads = 1;
  ActivationMode activations = ActivationMode::canonical;
};

/// `program` and its weights must outlive the backend.
std::unique_ptr<Backend> make_reference_backend(const Program& program, const ReferenceOptions& options);

}  // namespace cohort
