# Measurements of single kernels (cmake -DCOHORT_BENCH=ON): bench/NAME.cpp becomes bench_NAME.
find_package(benchmark REQUIRED)  # brings main() where a file has none
file(GLOB bench_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*.cpp)
foreach(source ${bench_sources})
  get_filename_component(name ${source} NAME_WE)
  add_executable(bench_${name} ${source})
  target_link_libraries(bench_${name} PRIVATE cohort_core benchmark::benchmark_main)
endforeach()
