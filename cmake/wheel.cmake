# What a wheel holds (COMMSCHED_WHEEL): libraries that need of a system what every one
# has. xxHash, libcrypto and the C++ library are linked into them, and hidden; so is
# Abseil, where its archives can be a part of a shared library. Where they cannot, as
# Debian's, its shared libraries go into the wheel, by names of their own (auditwheel).
# What is compiled is the same as for a release, so that a compiler cache has it.

# commsched_archive_of(TARGET OUT): the archive beside the shared library that an
# imported target is; "" of one that is headers only.
function(commsched_archive_of target out_archive)
  set(${out_archive} "" PARENT_SCOPE)
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  if(configurations)
    list(GET configurations 0 configuration)
    get_target_property(shared ${target} IMPORTED_LOCATION_${configuration})
    string(REGEX REPLACE "[.]so[0-9.]*$" ".a" archive "${shared}")
    set(${out_archive} ${archive} PARENT_SCOPE)
  endif()
endfunction()

# Whether code of `archive` can be a part of a shared library.
function(commsched_can_be_shared archive out_can)
  set(can OFF)
  if(EXISTS "${archive}")
    set(source ${PROJECT_BINARY_DIR}/empty.cc)
    file(WRITE ${source} "")
    try_compile(can ${PROJECT_BINARY_DIR}/archive SOURCES ${source}
      LINK_OPTIONS -shared -Wl,--whole-archive ${archive} -Wl,--no-whole-archive)
  endif()
  set(${out_can} ${can} PARENT_SCOPE)
endfunction()

# Makes imported targets archives, if all of them have one that can be used.
function(commsched_use_archives)
  set(with_archive)
  foreach(target ${ARGN})
    commsched_archive_of(${target} archive)
    if(archive)
      list(APPEND with_archive ${target})
    endif()
  endforeach()
  # It has variables of a thread: as good as any, and better than most.
  commsched_archive_of(absl::raw_hash_set archive)
  commsched_can_be_shared("${archive}" can)
  if(NOT can)
    message(STATUS "commsched: Abseil's shared libraries are to be in the wheel, since "
                   "its archives cannot be linked into others (${archive})")
    return()
  endif()
  foreach(target ${with_archive})
    commsched_archive_of(${target} archive)
    get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
    foreach(configuration ${configurations})
      set_target_properties(${target} PROPERTIES
        IMPORTED_LOCATION_${configuration} ${archive})
    endforeach()
  endforeach()
endfunction()

function(commsched_link_into_libraries)
  get_property(imported DIRECTORY ${PROJECT_SOURCE_DIR} PROPERTY IMPORTED_TARGETS)
  list(FILTER imported INCLUDE REGEX "^absl::")
  commsched_use_archives(${imported})
  find_library(COMMSCHED_XXHASH_ARCHIVE libxxhash.a REQUIRED)
  mark_as_advanced(COMMSCHED_XXHASH_ARCHIVE)
  set_target_properties(PkgConfig::xxhash PROPERTIES
    INTERFACE_LINK_LIBRARIES ${COMMSCHED_XXHASH_ARCHIVE})
endfunction()

# Links what a wheel's library or program must not ask of a system. The C++ library's
# archive wants arc4random() of glibc 2.36; what else is wanted, 2.34 has. (libgcc is
# the system's, as everybody's: its archive wants 2.35.)
function(commsched_link_for_wheel target)
  if(NOT COMMSCHED_WHEEL)
    return()
  endif()
  if(NOT TARGET commsched_older_glibc)
    add_library(commsched_older_glibc OBJECT
                ${PROJECT_SOURCE_DIR}/cmake/older_glibc.c)
    target_compile_definitions(commsched_older_glibc PRIVATE _GNU_SOURCE)
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:commsched_older_glibc>)
endfunction()
