# Files that are compiled together, some at a time: headers are parsed and
# templates instantiated once for all of them. It hides missing includes. The
# sanitizer presets and scripts/test build so; users, and scripts/test --all, one by
# one.
option(COMMSCHED_UNITY "Compile several files of a target at a time" OFF)

# commsched_unity(TARGET): its batches are of one size, so that none is long and none
# is left over.
function(commsched_unity target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]cc$")
  list(LENGTH sources count)
  if(NOT COMMSCHED_UNITY OR count LESS 2)
    return()
  endif()
  math(EXPR batches "(${count} + 9) / 10")
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
