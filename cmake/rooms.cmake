# Layers of the library: one archive per folder of src/, made from all its .cc
# files, so that adding a file needs no edit here.

set(COMMSCHED_ROOMS "" CACHE INTERNAL "Rooms in the order of declaration")

# commsched_room(NAME [DEPENDS room...]): library commsched_NAME from
# src/NAME/*.cc and the folders below it. A room without sources still carries its include folders and
# its arrows.
function(commsched_room name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPENDS")
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc
       ${PROJECT_SOURCE_DIR}/src/${name}/*/*.cc)
  set(target commsched_${name})
  if(sources)
    add_library(${target} STATIC ${sources})
    commsched_compile_as_room(${target})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope}
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  # The rooms are inside the library: a caller of the C ABI in the same binary
  # (a test) sees plain declarations.
  target_compile_definitions(${target} ${scope}
    COMMSCHED_VERSION_STRING="${PROJECT_VERSION}")
  list(TRANSFORM arg_DEPENDS PREPEND commsched_)
  target_link_libraries(${target} ${scope}
    ${arg_DEPENDS} ${COMMSCHED_ABSL} PkgConfig::xxhash
    nlohmann_json::nlohmann_json Threads::Threads)
  set(COMMSCHED_ROOMS ${COMMSCHED_ROOMS} ${name} CACHE INTERNAL "")
endfunction()

# Before 1.0 a minor version may change the ABI, so that the soname carries it.
set(COMMSCHED_SOVERSION ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION_MAJOR EQUAL 0)
  string(APPEND COMMSCHED_SOVERSION .${PROJECT_VERSION_MINOR})
endif()

# A shared library that exports exactly what the map names.
function(commsched_set_exports target map)
  target_link_options(${target} PRIVATE
    -Wl,--version-script=${map} -Wl,--no-undefined)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${map})
  set_target_properties(${target} PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${COMMSCHED_SOVERSION})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endfunction()

# `commsched`: the shared library, all rooms behind the C ABI.
function(commsched_shared_library)
  add_library(commsched SHARED)
  foreach(room ${COMMSCHED_ROOMS})
    get_target_property(type commsched_${room} TYPE)
    if(NOT type STREQUAL "INTERFACE_LIBRARY")
      target_sources(commsched PRIVATE $<TARGET_OBJECTS:commsched_${room}>)
    endif()
  endforeach()
  target_link_libraries(commsched PRIVATE
    ${COMMSCHED_ABSL} PkgConfig::xxhash OpenSSL::Crypto Threads::Threads)
  set_target_properties(commsched PROPERTIES LINKER_LANGUAGE CXX)
  commsched_set_exports(commsched ${PROJECT_SOURCE_DIR}/src/capi/exports.map)
  add_library(commsched::commsched ALIAS commsched)
endfunction()

# `commsched_engine`: a client of the public ABI like any other, so it sees
# include/ and nothing of src/.
function(commsched_engine_library)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/engine/*.cc)
  if(NOT sources)
    return()
  endif()
  add_library(commsched_engine SHARED ${sources})
  target_link_libraries(commsched_engine PUBLIC commsched
    PRIVATE PkgConfig::xxhash nlohmann_json::nlohmann_json Threads::Threads)
  # The optimizer gives the same bits wherever a shard is cut, so a * b + c may
  # not be fused in vector lanes only; and sqrt without errno vectorises.
  target_compile_options(commsched_engine PRIVATE
    -ffp-contract=off -fno-math-errno)
  set_target_properties(commsched_engine PROPERTIES
    EXPORT_NAME engine INSTALL_RPATH "$ORIGIN")
  commsched_set_exports(commsched_engine
    ${PROJECT_SOURCE_DIR}/src/engine/exports.map)
  add_library(commsched::engine ALIAS commsched_engine)
endfunction()

# The program `commsched`: a client of the public ABI, too.
function(commsched_command_line)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/*.cc)
  if(NOT COMMSCHED_HAVE_CLI OR NOT sources)
    return()
  endif()
  add_executable(commsched_cli ${sources})
  target_include_directories(commsched_cli PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(commsched_cli PRIVATE commsched CLI11::CLI11)
  set_target_properties(commsched_cli PROPERTIES
    OUTPUT_NAME commsched
    INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS commsched_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()
