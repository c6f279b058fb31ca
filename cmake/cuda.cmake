# The CUDA backend (src/kernels/cuda): compiled when nvcc is found, linked with the static runtime. Without it the same
# functions say that the binary was built without CUDA. nvcc runs as a plain command: CMake 3.25 does not know the C++20
# flags of CUDA 13, and nothing here needs its language support (there is no device linking).
if(COHORT_CUDA)
  find_program(COHORT_NVCC nvcc PATHS /usr/local/cuda/bin)
endif()
if(COHORT_CUDA AND COHORT_NVCC)
  get_filename_component(cuda_root ${COHORT_NVCC} REALPATH)
  get_filename_component(cuda_root ${cuda_root} DIRECTORY)
  get_filename_component(cuda_root ${cuda_root} DIRECTORY)
  find_path(COHORT_CUDA_INCLUDE cuda_runtime_api.h HINTS ${cuda_root}/include REQUIRED)
  find_library(COHORT_CUDART NAMES libcudart_static.a HINTS ${cuda_root}/lib64 ${cuda_root}/lib REQUIRED)
  # docs/NUMERICS.md: no contraction; the kernels round explicitly (__fmaf_rn and its like). They use bulk copies,
  # mbarriers and programmatic launches: machine code for sm_90, PTX for what comes after.
  set(cuda_flags -std=c++20 -O3 -fmad=false -gencode arch=compute_90,code=[sm_90,compute_90] -lineinfo
                 -Xcompiler=-Wall,-Wextra,-ffp-contract=off,-fPIC -Werror=all-warnings
                 -I${CMAKE_SOURCE_DIR}/include -I${CMAKE_SOURCE_DIR}/src)
  option(COHORT_CUDA_STAMPS "Kernels note where they are when, for device_check stamps (slower)" OFF)
  if(COHORT_CUDA_STAMPS)
    list(APPEND cuda_flags -DCOHORT_STAMPS)
    file(GLOB cuda_hosts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cpp)
    set_source_files_properties(${cuda_hosts} PROPERTIES COMPILE_DEFINITIONS COHORT_STAMPS)
  endif()
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
  foreach(source ${cuda_sources})
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda
      COMMAND ${CCACHE} ${COHORT_NVCC} ${cuda_flags} -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "Building CUDA object ${name}.o" VERBATIM COMMAND_EXPAND_LISTS)
    list(APPEND cuda_objects ${object})
  endforeach()
  set_source_files_properties(${cuda_objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(cohort_core PRIVATE ${cuda_objects})
  target_compile_definitions(cohort_core PRIVATE COHORT_HAS_CUDA)
  target_include_directories(cohort_core SYSTEM PRIVATE ${COHORT_CUDA_INCLUDE})
  target_link_libraries(cohort_core PUBLIC ${COHORT_CUDART} ${CMAKE_DL_LIBS} rt Threads::Threads)
  if(COHORT_TESTS)
    # Speaks the runtime's types, needs no device.
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cuda/canvases_test.cpp PROPERTIES
      COMPILE_DEFINITIONS COHORT_HAS_CUDA COMPILE_OPTIONS "-isystem;${COHORT_CUDA_INCLUDE}")
    # Runs on a machine with a device; CI only builds it (tools/device_check).
    add_executable(device_check tests/device/device_check.cpp tests/device/canvas_check.cpp
                   tests/device/host_check.cpp tests/device/synthetic.cpp tests/device/top_check.cpp)
    target_include_directories(device_check PRIVATE tests/device)
    target_link_libraries(device_check PRIVATE cohort_core -static-libstdc++ -static-libgcc)
  endif()
  message(STATUS "CUDA backend: on (${COHORT_NVCC})")
else()
  message(STATUS "CUDA backend: off")
endif()
