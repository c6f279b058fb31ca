# Third-party libraries, all from Debian packages (./dev setup installs them). Static where the package has an archive,
# so that the one binary runs on other distributions.
find_package(Threads REQUIRED)

if(COHORT_KERNELS_ONLY)
  # The host's header-only libraries serve any target; -idirafter keeps the host's libc headers behind the target's.
  add_library(cohort_deps INTERFACE)
  target_compile_options(cohort_deps INTERFACE "SHELL:-idirafter /usr/include")
  target_compile_definitions(cohort_deps INTERFACE SPDLOG_FMT_EXTERNAL)
  target_link_libraries(cohort_deps INTERFACE Threads::Threads m)
  return()
endif()

find_package(fmt REQUIRED)          # only its headers: Debian ships no archive, src/base/fmt_library.cpp is the library
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_path(TL_EXPECTED_INCLUDE tl/expected.hpp REQUIRED)
find_library(PCRE2_LIBRARY NAMES libpcre2-8.a REQUIRED)
find_library(UTF8PROC_LIBRARY NAMES libutf8proc.a REQUIRED)
find_library(HWLOC_LIBRARY NAMES libhwloc.a REQUIRED)
find_library(UDEV_LIBRARY NAMES udev REQUIRED)

add_library(cohort_deps INTERFACE)
target_include_directories(cohort_deps INTERFACE ${TL_EXPECTED_INCLUDE})
target_compile_definitions(cohort_deps INTERFACE SPDLOG_FMT_EXTERNAL PCRE2_CODE_UNIT_WIDTH=8 PCRE2_STATIC
                                                 UTF8PROC_STATIC)
target_link_libraries(cohort_deps INTERFACE nlohmann_json::nlohmann_json ${PCRE2_LIBRARY} ${UTF8PROC_LIBRARY}
                                            ${HWLOC_LIBRARY} ${UDEV_LIBRARY} Threads::Threads m)
