# Files that are compiled together, some at a time: headers are parsed and
# templates instantiated once for all of them. It hides missing includes. The
# sanitizer presets build so; scripts/test compiles the tests of the preset release
# so, and the library one by one, as users do.
set(COMMSCHED_UNITY OFF CACHE STRING
    "Compile several files of a target at a time: OFF, TESTS (of tests only) or ON")
set_property(CACHE COMMSCHED_UNITY PROPERTY STRINGS OFF TESTS ON)

# commsched_unity(TARGET [TEST]): the files of TARGET, which is a test or not.
# Batches are of one size, so that none is long and none is left over.
function(commsched_unity target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TEST" "" "")
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]cc$")
  list(LENGTH sources count)
  math(EXPR batches "(${count} + 9) / 10")
  set(wanted ${COMMSCHED_UNITY})
  if(COMMSCHED_UNITY STREQUAL TESTS)
    set(wanted ${arg_TEST})
  endif()
  if(NOT wanted OR count LESS 2)
    return()
  endif()
  math(EXPR size "(${count} + ${batches} - 1) / ${batches}")
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
endfunction()

# commsched_compile_alone(FILE...): not together with others, whose file-local
# names are the same. One with compiler flags or definitions of its own is alone
# anyway.
function(commsched_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES
    SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
