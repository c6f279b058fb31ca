#pragma once

// What a kernel's inner loop is made of must be part of it in every build.
#define COHORT_INLINE inline __attribute__((always_inline))
