// The oracle is portable scalar code, but std::fma without a hardware instruction is a library call. Functions marked
// COHORT_FMA_CLONES are compiled twice and chosen at load time; with contraction off both give the same bits.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define COHORT_FMA_CLONES __attribute__((target_clones("arch=haswell", "default")))
#else
#define COHORT_FMA_CLONES
#endif
