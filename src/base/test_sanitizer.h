#pragma once

namespace cohort {

/// Whether this is a build under the address or thread sanitizer, whose own memory (freed blocks that it keeps, shadow
/// pages) is resident, too: tests of resident memory say nothing then.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitizersMemory = true;
#else
inline constexpr bool kSanitizersMemory = false;
#endif

}  // namespace cohort
