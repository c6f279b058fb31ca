# Measurements of kernels alone (cmake -DCOHORT_BENCH=ON); `cohort bench` measures the product. bench/NAME_bench.cpp is a Google Benchmark,
# bench/NAME.cpp a program of its own; both become bench_NAME.
find_package(benchmark REQUIRED)
file(GLOB bench_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*.cpp)
foreach(source ${bench_sources})
  get_filename_component(name ${source} NAME_WE)
  string(REGEX MATCH "_bench$" google ${name})
  string(REPLACE "_bench" "" name ${name})
  add_executable(bench_${name} ${source})
  target_link_libraries(bench_${name} PRIVATE cohort_core)
  if(google)
    target_link_libraries(bench_${name} PRIVATE benchmark::benchmark_main)
  endif()
endforeach()
