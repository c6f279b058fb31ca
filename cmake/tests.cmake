# One test program per folder below src/ and tests/: the unit tests (*_test.cpp) sit beside their sources.
include(GoogleTest)
if(COHORT_KERNELS_ONLY)
  # GoogleTest from Debian's source package (googletest), for the target.
  set(gtest_root /usr/src/googletest/googletest)
  add_library(gtest_main STATIC ${gtest_root}/src/gtest-all.cc ${gtest_root}/src/gtest_main.cc)
  target_include_directories(gtest_main SYSTEM PUBLIC ${gtest_root}/include PRIVATE ${gtest_root})
  target_compile_options(gtest_main PRIVATE -w)  # not our code
  target_link_libraries(gtest_main PUBLIC Threads::Threads)
  add_library(GTest::gtest_main ALIAS gtest_main)
else()
  find_package(GTest REQUIRED)
endif()
file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*_test.cpp ${CMAKE_SOURCE_DIR}/tests/*_test.cpp)
if(COHORT_KERNELS_ONLY)
  list(FILTER test_sources INCLUDE REGEX "/src/(numerics|quant|kv|kernels)/")
endif()
foreach(source ${test_sources})
  file(RELATIVE_PATH relative ${CMAKE_SOURCE_DIR} ${source})
  string(REGEX REPLACE "^(src|tests)/([^/]+)/.*$" "\\2" group ${relative})
  list(APPEND tests_of_${group} ${source})
  list(APPEND test_groups ${group})
endforeach()
list(REMOVE_DUPLICATES test_groups)
foreach(group ${test_groups})
  add_executable(test_${group} ${tests_of_${group}})
  target_link_libraries(test_${group} PRIVATE cohort_core GTest::gtest_main)
  target_compile_options(test_${group} PRIVATE $<$<CONFIG:Release>:-O1>)  # what is tested is in the library; half the time to compile
  target_compile_definitions(test_${group} PRIVATE COHORT_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  gtest_discover_tests(test_${group} TEST_PREFIX "${group}." NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 1800)
endforeach()

if(COHORT_KERNELS_ONLY)
  return()
endif()

# The command line, as people run it.
if(TARGET cohort)
  add_dependencies(test_cli cohort)
  target_compile_definitions(test_cli PRIVATE COHORT_PROGRAM="$<TARGET_FILE:cohort>")
endif()

# What tools/tokenizer_compare.py talks to.
add_executable(tokenize_tool ${CMAKE_SOURCE_DIR}/tests/support/tokenize_tool.cpp)
target_link_libraries(tokenize_tool PRIVATE cohort_core)

# The server with real clients; skipped (exit code 77) where the Python package openai is not installed.
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND AND TARGET cohort)
  add_test(NAME api.openai COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/api/openai_test.py $<TARGET_FILE:cohort>
                                   ${CMAKE_SOURCE_DIR}/tests/golden/gguf/qwen3_moe-bf16.gguf)
  set_tests_properties(api.openai PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 120)
  add_test(NAME api.diffusion COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/api/diffusion_test.py $<TARGET_FILE:cohort>
                                      ${CMAKE_SOURCE_DIR}/tests/golden/gguf/diffusion_gemma-bf16.gguf)
  set_tests_properties(api.diffusion PROPERTIES TIMEOUT 120)
  add_test(NAME deploy COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/deploy/deploy_test.py $<TARGET_FILE:cohort>
                               ${CMAKE_SOURCE_DIR}/tests/golden/gguf/qwen3_moe-bf16.gguf)
  set_tests_properties(deploy PROPERTIES TIMEOUT 120)
endif()
