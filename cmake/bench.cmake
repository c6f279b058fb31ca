# Micro-benchmarks: bench/NAME_bench.cpp becomes bench_NAME. They measure kernels alone; `cohort bench` measures the product.
find_package(benchmark REQUIRED)
file(GLOB bench_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*_bench.cpp)
foreach(source ${bench_sources})
  get_filename_component(name ${source} NAME_WE)
  string(REPLACE "_bench" "" name ${name})
  add_executable(bench_${name} ${source})
  target_link_libraries(bench_${name} PRIVATE cohort_core benchmark::benchmark_main)
endforeach()
