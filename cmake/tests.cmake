# Tests, benchmarks and examples, found by folder.
#
#   test/<name>/*_test.cc    -> bin/test_<name>, every .cc and .c of the folder
#   bench/<name>/*_bench.cc  -> bin/bench_<name>
#   examples/<name>/main.c*  -> bin/example_<name>, output against expected.txt
#
# A CMakeLists.txt in such a folder replaces the rule for that folder; it may
# call commsched_add_test_binary() and its like itself.

# What a test binary stands on: its own room, or for a suite without a room of
# that name the layer below which the suite looks. "public" is the shared
# libraries.
function(commsched_layer_of name out_libraries)
  set(layer_conformance channel)
  set(layer_property session)
  set(public abi engine)
  if(name IN_LIST public)
    set(libraries commsched)
    if(TARGET commsched_engine)
      list(APPEND libraries commsched_engine)
    endif()
  elseif(name IN_LIST COMMSCHED_ROOMS)
    set(libraries commsched_${name})
  elseif(DEFINED layer_${name})
    set(libraries commsched_${layer_${name}})
  else()
    set(libraries commsched_capi)
  endif()
  set(${out_libraries} ${libraries} PARENT_SCOPE)
endfunction()

function(commsched_label_of name out_label)
  set(own_label conformance property abi)
  set(label unit)
  if(name IN_LIST own_label)
    set(label ${name})
  endif()
  set(${out_label} ${label} PARENT_SCOPE)
endfunction()

# Compiles the sources of `target` as tests: their speed is not measured, so
# COMMSCHED_TEST_FLAGS may say what builds quickest.
function(commsched_compile_as_test target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:${COMMSCHED_TEST_FLAGS}>)
  # With the compiler's default, programs and archives agree on this, as sharing
  # a precompiled header demands.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  if(NOT target STREQUAL "commsched_precompiled_test")
    target_precompile_headers(${target} REUSE_FROM commsched_precompiled_test)
  endif()
endfunction()

# The archive of fakes, behind the standard library: a template that both have
# must not draw in a member and with it another room.
function(commsched_link_test_support target)
  target_link_libraries(${target} PRIVATE stdc++ commsched_test_support)
endfunction()

# commsched_add_test_binary(NAME [SOURCES f...] [LINK lib...] [LABELS l...]
#                           [ENVIRONMENT variable=value;...]):
# test_NAME with GoogleTest's main; each TEST becomes a ctest test, or with
# COMMSCHED_TEST_SHARDS each shard of them.
function(commsched_add_test_binary name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK;LABELS;ENVIRONMENT")
  if(NOT arg_SOURCES)
    file(GLOB arg_SOURCES CONFIGURE_DEPENDS
         ${PROJECT_SOURCE_DIR}/test/${name}/*.cc
         ${PROJECT_SOURCE_DIR}/test/${name}/*.c
         ${PROJECT_SOURCE_DIR}/test/${name}/*/*_test.cc)
  endif()
  if(NOT arg_SOURCES)
    # A folder whose tests are still to come; an empty binary keeps the rest
    # configurable.
    message(WARNING "test/${name} has no tests yet")
    set(arg_SOURCES ${PROJECT_BINARY_DIR}/no_tests.cc)
    file(TOUCH ${arg_SOURCES})
  endif()
  if(NOT arg_LINK)
    commsched_layer_of(${name} arg_LINK)
  endif()
  if(NOT arg_LABELS)
    commsched_label_of(${name} arg_LABELS)
  endif()
  add_executable(test_${name} ${arg_SOURCES})
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  commsched_link_test_support(test_${name})
  target_link_libraries(test_${name} PRIVATE
    ${arg_LINK} GTest::gmock GTest::gtest_main)
  commsched_compile_as_test(test_${name})
  commsched_unity(test_${name})
  # A process takes up to a tenth of a second to begin, which most TESTs do not
  # take to end. scripts/summarize-tests reads which of them passed.
  if(COMMSCHED_TEST_SHARDS)
    math(EXPR last "${COMMSCHED_TEST_SHARDS} - 1")
    foreach(shard RANGE ${last})
      add_test(NAME test_${name}.${shard} COMMAND env ${arg_ENVIRONMENT}
        GTEST_TOTAL_SHARDS=${COMMSCHED_TEST_SHARDS} GTEST_SHARD_INDEX=${shard}
        GTEST_OUTPUT=json:${PROJECT_BINARY_DIR}/gtest/test_${name}.${shard}.json
        $<TARGET_FILE:test_${name}>)
      set_tests_properties(test_${name}.${shard} PROPERTIES
        LABELS "${arg_LABELS}" TIMEOUT 600)
    endforeach()
    return()
  endif()
  include(GoogleTest)
  if(arg_ENVIRONMENT)
    # The property of that name takes one variable only, by way of this function.
    set_target_properties(test_${name} PROPERTIES
      CROSSCOMPILING_EMULATOR "env;${arg_ENVIRONMENT}")
  endif()
  list(GET arg_LABELS 0 label)
  gtest_discover_tests(test_${name} DISCOVERY_MODE PRE_TEST
    PROPERTIES LABELS ${label} TIMEOUT 300)
  # That function would take a second label for the name of a property.
  list(LENGTH arg_LABELS num_labels)
  if(num_labels GREATER 1)
    set(labels ${CMAKE_CURRENT_BINARY_DIR}/test_${name}_labels.cmake)
    file(CONFIGURE OUTPUT ${labels} @ONLY CONTENT [[
if(test_@name@_TESTS)
  set_tests_properties(${test_@name@_TESTS} PROPERTIES LABELS "@arg_LABELS@")
endif()
]])
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels})
  endif()
endfunction()

# Fakes and matchers in test/support. An archive that names no room, so that a
# test pulls in only the members it uses and links them against its own room;
# its files are compiled one by one for that.
# alloc_counter replaces operator new and is linked only where asked for.
# Benchmarks use them, too, also where no tests are built; none of the sources
# needs GoogleTest.
function(commsched_add_test_support)
  set(folder ${PROJECT_SOURCE_DIR}/test/support)
  set(counter ${folder}/alloc_counter.cc)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cc)
  list(REMOVE_ITEM sources ${counter})
  add_library(commsched_test_support STATIC ${sources})
  target_include_directories(commsched_test_support PUBLIC
    ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(commsched_test_support PUBLIC
    ${COMMSCHED_ABSL} Threads::Threads)
  if(COMMSCHED_HAVE_TESTS)
    target_link_libraries(commsched_test_support PUBLIC GTest::gmock)
  endif()
  commsched_compile_as_room(commsched_test_support)
  add_library(alloc_counter OBJECT ${counter})
  target_include_directories(alloc_counter PUBLIC ${PROJECT_SOURCE_DIR})
endfunction()

# Stand-ins of the CUDA runtime and of NCCL, as a library to be loaded in their
# place; tests and benchmarks use it.
function(commsched_add_fake_gpu)
  if(TARGET commsched_fake_gpu)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS
       ${PROJECT_SOURCE_DIR}/test/fakes/gpu/*.cc)
  add_library(commsched_fake_gpu SHARED ${sources})
  target_include_directories(commsched_fake_gpu SYSTEM PRIVATE
    ${COMMSCHED_CUDA_INCLUDE_DIR} ${COMMSCHED_NCCL_INCLUDE_DIR})
  target_include_directories(commsched_fake_gpu PRIVATE
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  # As the processor's kernels and those of a device.
  target_compile_options(commsched_fake_gpu PRIVATE -ffp-contract=off)
  target_link_libraries(commsched_fake_gpu PRIVATE Threads::Threads)
  # NCCL's communicator, a type with linkage, has fields of types without.
  commsched_compile_alone(${PROJECT_SOURCE_DIR}/test/fakes/gpu/nccl.cc)
  commsched_unity(commsched_fake_gpu)
  set_target_properties(commsched_fake_gpu PROPERTIES
    CXX_VISIBILITY_PRESET default)
endfunction()

# The names of the folders in `root` that hold a CMakeLists.txt or a file that
# matches `pattern`.
function(commsched_folders root pattern out_names)
  file(GLOB found CONFIGURE_DEPENDS
       ${root}/*/${pattern} ${root}/*/CMakeLists.txt)
  set(names "")
  foreach(path ${found})
    cmake_path(GET path PARENT_PATH folder)
    cmake_path(GET folder FILENAME name)
    list(APPEND names ${name})
  endforeach()
  list(REMOVE_DUPLICATES names)
  list(SORT names)
  set(${out_names} ${names} PARENT_SCOPE)
endfunction()

# Rooms whose code and tests know one thread, in which the thread sanitizer has
# nothing to find.
set(COMMSCHED_SINGLE_THREADED cli fuzz graph kernels plan step_plan)
# Folders whose tests call what others call from many threads: with
# COMMSCHED_FEWER_TESTS the thread sanitizer has the others only.
set(COMMSCHED_FEW_THREADED abi capi checkpoint nvtx trace)
# Rooms of many threads: with COMMSCHED_FEWER_TESTS only the thread sanitizer has
# their own tests. Those of conformance, of the engine and of the ABI, which other
# sanitizers have, too, go through these rooms.
set(COMMSCHED_MANY_THREADED channel comm cuda exec recording session)

function(commsched_add_all_tests)
  commsched_precompile(test
    ${COMMSCHED_ABSL} GTest::gmock GTest::gtest Threads::Threads)
  commsched_compile_as_test(commsched_precompiled_test)
  commsched_add_test_support()
  commsched_folders(${PROJECT_SOURCE_DIR}/test *_test.cc names)
  if(COMMSCHED_SANITIZE STREQUAL "thread")
    list(REMOVE_ITEM names ${COMMSCHED_SINGLE_THREADED})
    if(COMMSCHED_FEWER_TESTS)
      list(REMOVE_ITEM names ${COMMSCHED_FEW_THREADED})
    endif()
  elseif(COMMSCHED_SANITIZE AND COMMSCHED_FEWER_TESTS)
    list(REMOVE_ITEM names ${COMMSCHED_MANY_THREADED})
  endif()
  foreach(name ${names})
    if(EXISTS ${PROJECT_SOURCE_DIR}/test/${name}/CMakeLists.txt)
      add_subdirectory(test/${name})
    else()
      commsched_add_test_binary(${name})
    endif()
  endforeach()
endfunction()

# commsched_add_bench_binary(NAME [SOURCES f...] [LINK lib...]): bench_NAME with
# bench/main.cc; alloc_counter is linked in.
function(commsched_add_bench_binary name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  if(NOT arg_SOURCES)
    file(GLOB arg_SOURCES CONFIGURE_DEPENDS
         ${PROJECT_SOURCE_DIR}/bench/${name}/*.cc)
  endif()
  if(NOT arg_LINK)
    commsched_layer_of(${name} arg_LINK)
  endif()
  add_executable(bench_${name} ${arg_SOURCES}
    ${PROJECT_SOURCE_DIR}/bench/main.cc)
  target_include_directories(bench_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  commsched_link_test_support(bench_${name})
  target_link_libraries(bench_${name} PRIVATE
    ${arg_LINK} alloc_counter benchmark::benchmark)
endfunction()

function(commsched_add_all_benches)
  if(NOT TARGET commsched_test_support)
    commsched_add_test_support()
  endif()
  commsched_folders(${PROJECT_SOURCE_DIR}/bench *_bench.cc names)
  foreach(name ${names})
    if(EXISTS ${PROJECT_SOURCE_DIR}/bench/${name}/CMakeLists.txt)
      add_subdirectory(bench/${name})
    else()
      commsched_add_bench_binary(${name})
    endif()
  endforeach()
endfunction()

# commsched_add_example(NAME): example_NAME from the folder's C and C++ files,
# on the shared libraries only. With expected.txt beside it ctest compares.
function(commsched_add_example name)
  set(folder ${PROJECT_SOURCE_DIR}/examples/${name})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.c ${folder}/*.cc)
  add_executable(example_${name} ${sources})
  commsched_layer_of(engine libraries)
  target_link_libraries(example_${name} PRIVATE ${libraries} Threads::Threads m)
  if(EXISTS ${folder}/expected.txt AND COMMSCHED_HAVE_TESTS)
    add_test(NAME example.${name} COMMAND ${CMAKE_COMMAND}
      -DPROGRAM=$<TARGET_FILE:example_${name}>
      -DEXPECTED=${folder}/expected.txt
      -P ${PROJECT_SOURCE_DIR}/cmake/compare_output.cmake)
    set_tests_properties(example.${name} PROPERTIES
      LABELS examples TIMEOUT 120)
  endif()
endfunction()

function(commsched_add_examples)
  commsched_folders(${PROJECT_SOURCE_DIR}/examples main.c* names)
  foreach(name ${names})
    set(part EXAMPLES)
    if(name STREQUAL "trainer")
      set(part TRAINER)
    endif()
    if(NOT COMMSCHED_HAVE_${part})
      continue()
    elseif(EXISTS ${PROJECT_SOURCE_DIR}/examples/${name}/CMakeLists.txt)
      add_subdirectory(examples/${name})
    else()
      commsched_add_example(${name})
    endif()
  endforeach()
endfunction()
