# Every .cpp below src/ belongs to the one library, except tests and the command line. A file whose name ends in an
# instruction set (x_avx2.cpp, x_avx512.cpp, x_avx512vbmi.cpp, x_amx.cpp, x_neon.cpp) is compiled for it and reached only by run-time dispatch.
file(GLOB_RECURSE COHORT_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*.cpp)
list(FILTER COHORT_SOURCES EXCLUDE REGEX "_test\\.cpp$")
list(FILTER COHORT_SOURCES EXCLUDE REGEX "/src/cli/main\\.cpp$")
if(COHORT_KERNELS_ONLY)
  list(FILTER COHORT_SOURCES INCLUDE REGEX "/src/(base|numerics|quant|kv|models|moe|formats|kernels)/")
endif()

if(COHORT_FUZZ)
  # The fuzz targets read files, text and requests; the kernels need not be built with the fuzzer's instrumentation.
  list(FILTER COHORT_SOURCES INCLUDE REGEX "/src/(base|formats|quant|text|server/openai|models|numerics)/")
endif()

set(COHORT_X86 OFF)
set(COHORT_ARM OFF)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(COHORT_X86 ON)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(COHORT_ARM ON)
endif()

set(isa_flags_avx2 -mavx2 -mfma -mf16c -mbmi2)
# The last ones: GCC 12 warns about the undefined operands inside its own intrinsics (GCC bug 105593).
set(isa_flags_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx2 -mfma -mf16c -mbmi2 -Wno-uninitialized)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND isa_flags_avx512 -Wno-maybe-uninitialized)
endif()
set(isa_flags_avx512vbmi ${isa_flags_avx512} -mavx512vbmi -mgfni)
set(isa_flags_amx ${isa_flags_avx512vbmi} -mamx-tile -mamx-int8)
set(isa_flags_neon -march=armv8.2-a+dotprod+fp16)
foreach(isa avx2 avx512 avx512vbmi amx neon)
  set(isa_sources ${COHORT_SOURCES})
  list(FILTER isa_sources INCLUDE REGEX "_${isa}\\.cpp$")
  if((isa STREQUAL "neon" AND COHORT_ARM) OR (NOT isa STREQUAL "neon" AND COHORT_X86))
    set_source_files_properties(${isa_sources} PROPERTIES COMPILE_OPTIONS "${isa_flags_${isa}}")
  else()
    list(FILTER COHORT_SOURCES EXCLUDE REGEX "_${isa}\\.cpp$")
  endif()
endforeach()

# The command line runs for microseconds and instantiates CLI11's templates, which take twice as long to optimise fully.
file(GLOB cli_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.cpp)
set_property(SOURCE ${cli_sources} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 takes the unused half of a moved string, or of a variant, for an uninitialised one.
  set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/text/template/parser_statements.cpp
                      ${CMAKE_SOURCE_DIR}/src/text/tokenizer/from_gguf.cpp
               APPEND PROPERTY COMPILE_OPTIONS -Wno-maybe-uninitialized)
endif()

add_library(cohort_core STATIC ${COHORT_SOURCES})
target_include_directories(cohort_core PUBLIC ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(cohort_core PUBLIC cohort_deps)
target_compile_definitions(cohort_core PUBLIC COHORT_VERSION="${PROJECT_VERSION}")

if(NOT COHORT_FUZZ AND NOT COHORT_KERNELS_ONLY)
  add_executable(cohort ${CMAKE_SOURCE_DIR}/src/cli/main.cpp)
  target_link_libraries(cohort PRIVATE cohort_core -static-libstdc++ -static-libgcc)
endif()
