# What the library needs, and what each optional part needs.
find_package(absl REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
find_package(Boost 1.74 REQUIRED CONFIG)  # Headers: Asio.
if(COMMSCHED_WHEEL)
  set(OPENSSL_USE_STATIC_LIBS ON)
endif()
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
if(COMMSCHED_WHEEL)
  commsched_link_into_libraries()
  add_link_options(-static-libstdc++ -Wl,--exclude-libs,ALL)
endif()

set(COMMSCHED_ABSL
    absl::base absl::btree absl::flat_hash_map absl::flat_hash_set
    absl::function_ref absl::inlined_vector absl::optional absl::span
    absl::status absl::statusor absl::str_format absl::strings absl::cleanup)

# Abseil's containers have more fields where the address sanitizer is on, and mark
# what is free of them; its libraries, which the system has built without, have no
# such fields and marks (hence allow_user_poisoning=0 in CMakePresets.json).
if(COMMSCHED_SANITIZE MATCHES address)
  add_compile_definitions(NDEBUG_SANITIZER)
endif()
# Checks for null pointers keep g++ from comparing a function with null at compile
# time, which newer versions of Abseil do. (The address sanitizer sees null, too.)
if(COMMSCHED_SANITIZE MATCHES undefined)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_FLAGS -fsanitize=${COMMSCHED_SANITIZE})
  set(CMAKE_REQUIRED_LIBRARIES absl::flat_hash_map)
  check_cxx_source_compiles("
    #include <absl/container/flat_hash_map.h>
    int main() {
      absl::flat_hash_map<int, int> map;
      map.try_emplace(1, 1);
    }" COMMSCHED_ABSEIL_TAKES_NULL_CHECKS)
  unset(CMAKE_REQUIRED_FLAGS)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(NOT COMMSCHED_ABSEIL_TAKES_NULL_CHECKS)
    add_compile_options(
      -fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute)
  endif()
endif()

find_package(GTest QUIET)
find_package(Python3 3.9 QUIET COMPONENTS Interpreter)
find_package(benchmark QUIET)
find_package(CLI11 QUIET)
pkg_check_modules(ucx QUIET IMPORTED_TARGET ucx)
if(COMMSCHED_SANITIZE MATCHES thread)
  # UCX hooks into the release of memory, where threads end, too: by then the
  # thread sanitizer has forgotten them.
  set(ucx_FOUND OFF)
endif()

# Debian's CMake package for oneDNN demands OpenCL, so it is found by hand.
find_library(COMMSCHED_DNNL_LIBRARY dnnl)
find_path(COMMSCHED_DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
mark_as_advanced(COMMSCHED_DNNL_LIBRARY COMMSCHED_DNNL_INCLUDE_DIR)
if(COMMSCHED_DNNL_LIBRARY AND COMMSCHED_DNNL_INCLUDE_DIR)
  add_library(commsched_dnnl UNKNOWN IMPORTED GLOBAL)
  set_target_properties(commsched_dnnl PROPERTIES
    IMPORTED_LOCATION "${COMMSCHED_DNNL_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${COMMSCHED_DNNL_INCLUDE_DIR}")
endif()

# The compiler and headers: libraries are found when a program runs. Of a toolkit,
# or of the wheels that scripts/install-deps --with cuda installs. The headers are
# those beside the compiler, since it takes no others; the libraries of CUDA's
# device code, which its own headers include, may lie in a folder of their own.
commsched_forget_missing(COMMSCHED_NVCC COMMSCHED_CUDA_INCLUDE_DIR
  COMMSCHED_CCCL_INCLUDE_DIR COMMSCHED_NVTX_INCLUDE_DIR
  COMMSCHED_NCCL_INCLUDE_DIR COMMSCHED_NVRTC_12)
set(COMMSCHED_CUDA_VENV ${PROJECT_SOURCE_DIR}/build/cuda-venv CACHE PATH
    "Where scripts/install-deps --with cuda installs")
mark_as_advanced(COMMSCHED_CUDA_VENV)
file(GLOB COMMSCHED_CUDA_WHEELS
     ${COMMSCHED_CUDA_VENV}/lib/python3*/site-packages/nvidia)
find_program(COMMSCHED_NVCC nvcc HINTS
  $ENV{CUDA_HOME}/bin /usr/local/cuda/bin ${COMMSCHED_CUDA_WHEELS}/cu13/bin)
set(COMMSCHED_NVCC_INCLUDE_DIR "")
if(COMMSCHED_NVCC)
  file(REAL_PATH ${COMMSCHED_NVCC} nvcc)
  cmake_path(GET nvcc PARENT_PATH nvcc)
  cmake_path(GET nvcc PARENT_PATH nvcc)
  set(COMMSCHED_NVCC_INCLUDE_DIR ${nvcc}/include)
endif()
find_path(COMMSCHED_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS
  ${COMMSCHED_NVCC_INCLUDE_DIR} $ENV{CUDA_HOME}/include /usr/local/cuda/include)
find_path(COMMSCHED_CCCL_INCLUDE_DIR nv/target HINTS
  ${COMMSCHED_NVCC_INCLUDE_DIR} ${COMMSCHED_NVCC_INCLUDE_DIR}/cccl
  ${COMMSCHED_CUDA_INCLUDE_DIR} ${COMMSCHED_CUDA_INCLUDE_DIR}/cccl)
find_path(COMMSCHED_NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h HINTS
  ${COMMSCHED_NVCC_INCLUDE_DIR} ${COMMSCHED_CUDA_INCLUDE_DIR})
find_path(COMMSCHED_NCCL_INCLUDE_DIR nccl.h HINTS
  ${COMMSCHED_CUDA_INCLUDE_DIR} ${COMMSCHED_CUDA_WHEELS}/nccl/include)
# That of CUDA 12.4 makes kernels for drivers which do not take what nvcc of CUDA 13
# makes; cmake/compile_kernels.py refuses another one.
find_file(COMMSCHED_NVRTC_12 libnvrtc.so.12 NO_DEFAULT_PATH HINTS
  ${COMMSCHED_CUDA_WHEELS}/cuda_nvrtc/lib /usr/local/cuda-12.4/lib64)
mark_as_advanced(COMMSCHED_NVRTC_12)
mark_as_advanced(COMMSCHED_CUDA_INCLUDE_DIR COMMSCHED_CCCL_INCLUDE_DIR
                 COMMSCHED_NVTX_INCLUDE_DIR COMMSCHED_NCCL_INCLUDE_DIR
                 COMMSCHED_NVCC)

# The Python that scripts/install-deps --with torch makes, or any other that has
# PyTorch and pytest.
commsched_forget_missing(COMMSCHED_TORCH_PYTHON)
find_program(COMMSCHED_TORCH_PYTHON python NO_DEFAULT_PATH HINTS
  ${PROJECT_SOURCE_DIR}/build/torch-venv/bin)
mark_as_advanced(COMMSCHED_TORCH_PYTHON)

commsched_find_python(COMMSCHED_PYTEST_PYTHON pytest)
commsched_find_python(COMMSCHED_HTA_PYTHON hta)
commsched_find_python(COMMSCHED_PERFETTO_PYTHON perfetto)

commsched_decide(TESTS NEEDS
  "GoogleTest (libgtest-dev, libgmock-dev)" GTest_FOUND
  "Python 3 (python3)" Python3_FOUND)
commsched_decide(BENCHES NEEDS
  "Google Benchmark (libbenchmark-dev)" benchmark_FOUND)
commsched_decide(EXAMPLES)
commsched_decide(TRAINER NEEDS
  "oneDNN (libdnnl-dev)" COMMSCHED_DNNL_LIBRARY
  "CLI11 (libcli11-dev)" CLI11_FOUND)
commsched_decide(UCX NEEDS
  "UCX (libucx-dev), without the thread sanitizer" ucx_FOUND)
commsched_decide(CUDA NEEDS
  "CUDA's headers (scripts/install-deps --with cuda)" COMMSCHED_CUDA_INCLUDE_DIR
  "CUDA's compiler nvcc (the same)" COMMSCHED_NVCC
  "nv/target of CUDA's core libraries (the same)" COMMSCHED_CCCL_INCLUDE_DIR
  "NVTX's header (the same)" COMMSCHED_NVTX_INCLUDE_DIR
  "NCCL's header (the same)" COMMSCHED_NCCL_INCLUDE_DIR)
commsched_decide(CUDA_12_KERNELS NEEDS
  "CUDA devices" COMMSCHED_HAVE_CUDA
  "NVRTC 12.4 (scripts/install-deps --with cuda)" COMMSCHED_NVRTC_12
  "Python 3 (python3)" Python3_FOUND)
commsched_decide(CLI NEEDS
  "CLI11 (libcli11-dev)" CLI11_FOUND)
commsched_decide(GPU_CHECK NEEDS
  "the tests" COMMSCHED_HAVE_TESTS
  "CUDA devices" COMMSCHED_HAVE_CUDA)
set(COMMSCHED_LOADED_BY_PYTHON ON)  # It does not load a library with a sanitizer.
if(COMMSCHED_SANITIZE)
  set(COMMSCHED_LOADED_BY_PYTHON OFF)
endif()
commsched_decide(PYTHON NEEDS
  "the tests" COMMSCHED_HAVE_TESTS
  "a build without sanitizers" COMMSCHED_LOADED_BY_PYTHON
  "pytest (python3-pytest)" COMMSCHED_PYTEST_PYTHON)
commsched_decide(TORCH NEEDS
  "the tests" COMMSCHED_HAVE_TESTS
  "the backend ucx" COMMSCHED_HAVE_UCX
  "a build without sanitizers" COMMSCHED_LOADED_BY_PYTHON
  "PyTorch (scripts/install-deps --with torch)" COMMSCHED_TORCH_PYTHON)
