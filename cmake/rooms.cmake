# Layers of the library: one archive per folder of src/, made from all its .cc
# files, so that adding a file needs no edit here.

set(COMMSCHED_ROOMS "" CACHE INTERNAL "Rooms in the order of declaration")

# commsched_room(NAME [DEPENDS room...]): library commsched_NAME from
# src/NAME/*.cc and the folders below it. A room without sources still carries its include folders and
# its arrows.
# EXCLUDE: files whose name matches are left out.
function(commsched_room name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "EXCLUDE" "DEPENDS")
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc
       ${PROJECT_SOURCE_DIR}/src/${name}/*/*.cc)
  if(arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${arg_EXCLUDE}")
  endif()
  set(target commsched_${name})
  if(sources)
    add_library(${target} STATIC ${sources})
    commsched_compile_as_room(${target})
    commsched_unity(${target})
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
  commsched_link_for_wheel(${target})
  if(COMMSCHED_WHEEL)  # No links are in a wheel: the file has the soname.
    set_target_properties(${target} PROPERTIES VERSION ${COMMSCHED_SOVERSION})
  endif()
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

# commsched_fatbin(FATBIN SOURCE DEPENDS file...): has nvcc make a fat binary of a
# file of kernels. The code is for the compute capabilities of COMMSCHED_CUDA_ARCHS;
# for others from 8.0 on a driver compiles it when a program runs.
function(commsched_fatbin fatbin source)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "DEPENDS")
  set(codes -gencode arch=compute_80,code=compute_80)
  foreach(arch ${COMMSCHED_CUDA_ARCHS})
    list(APPEND codes -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/*.h)
  # What is indexed is in registers; elsewhere it is slow.
  set(warnings -warn-lmem-usage -warn-spills)
  if(COMMSCHED_WERROR)
    list(APPEND warnings -Werror)
  endif()
  list(JOIN warnings "," warnings)
  # a * b + c is not fused: the same bits as the processor's.
  add_custom_command(OUTPUT ${fatbin}
    COMMAND ${COMMSCHED_NVCC} -std=c++20 -O3 -fmad=false
      --expt-relaxed-constexpr -Xptxas ${warnings} ${codes} -fatbin -I${PROJECT_SOURCE_DIR}
      -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src
      -o ${fatbin} ${source}
    DEPENDS ${source} ${headers} ${arg_DEPENDS}
      ${PROJECT_SOURCE_DIR}/include/commsched/engine_kernels.h
    COMMENT "Compiling ${source} for CUDA devices" VERBATIM)
endfunction()

# commsched_cubin(CUBIN SOURCE SM): has NVRTC of CUDA 12.4 compile a file of kernels
# for one compute capability, for drivers from CUDA 12.4 on.
function(commsched_cubin cubin source sm)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/*.h
       ${PROJECT_SOURCE_DIR}/src/kernels/nvrtc/*)
  set(compile ${PROJECT_SOURCE_DIR}/cmake/compile_kernels.py)
  add_custom_command(OUTPUT ${cubin}
    COMMAND Python3::Interpreter ${compile} ${COMMSCHED_NVRTC_12}
      ${PROJECT_SOURCE_DIR} ${source} ${sm} ${cubin}
    DEPENDS ${source} ${headers} ${compile}
      ${PROJECT_SOURCE_DIR}/include/commsched/engine_kernels.h
    COMMENT "Compiling ${source} for drivers of CUDA 12.4 (sm_${sm})" VERBATIM)
endfunction()

# `commsched_cuda_kernels`: the kernels of devices, as nvcc and NVRTC compile them,
# and what launches them.
function(commsched_cuda_kernels_library)
  set(folder ${PROJECT_SOURCE_DIR}/src/kernels)
  set(images ${PROJECT_BINARY_DIR}/kernels.fatbin)
  set(definitions "COMMSCHED_KERNELS_FATBIN=\"${images}\"")
  commsched_fatbin(${images} ${folder}/kernels.cu)
  if(COMMSCHED_HAVE_CUDA_12_KERNELS)
    foreach(sm 80 90)
      set(cubin ${PROJECT_BINARY_DIR}/kernels_12_sm_${sm}.cubin)
      commsched_cubin(${cubin} ${folder}/kernels.cu ${sm})
      list(APPEND images ${cubin})
      list(APPEND definitions "COMMSCHED_KERNELS_12_SM_${sm}=\"${cubin}\"")
    endforeach()
  endif()
  add_library(commsched_cuda_kernels STATIC
    ${folder}/cuda_api.cc ${folder}/cuda_images.cc ${folder}/cuda_kernels.cc
    ${images})
  set_source_files_properties(${folder}/cuda_images.cc PROPERTIES
    OBJECT_DEPENDS "${images}" COMPILE_DEFINITIONS "${definitions}")
  target_include_directories(commsched_cuda_kernels PUBLIC
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_include_directories(commsched_cuda_kernels SYSTEM PUBLIC
    ${COMMSCHED_CUDA_INCLUDE_DIR})
  target_link_libraries(commsched_cuda_kernels PUBLIC ${CMAKE_DL_LIBS})
  set_target_properties(commsched_cuda_kernels PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
endfunction()

# `commsched_engine`: a client of the public ABI like any other, so it sees
# include/, and of src/ only the rooms of kernels and of checkpoints. What tests look
# into, since the shared library does not export it: `engine_checkpoint`, the room, and
# `engine_planning`, models and step plans, which stand alone; and `engine_internals`.
function(commsched_engine_library)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/engine/*.cc
       ${PROJECT_SOURCE_DIR}/src/engine/*/*.cc
       ${PROJECT_SOURCE_DIR}/src/engine/*/*/*.cc)
  if(NOT sources)
    return()
  endif()
  if(COMMSCHED_HAVE_CUDA)
    list(FILTER sources EXCLUDE REGEX "/cuda_tables_missing[.]cc$")
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda_tables[.]cc$")
  endif()
  set(folder ${PROJECT_SOURCE_DIR}/src/engine)
  # Both tables of kernels have functions of the same names.
  commsched_compile_alone(${folder}/tables/kernels.cc)
  file(GLOB checkpoint CONFIGURE_DEPENDS
       ${PROJECT_SOURCE_DIR}/src/checkpoint/*.cc
       ${PROJECT_SOURCE_DIR}/src/checkpoint/*/*.cc)
  # Of attention, what stands without an engine; of tables, what no device needs.
  set(internals ${sources})
  list(FILTER internals INCLUDE REGEX
    "/src/engine/(run/|state/|tables/|update/|attention/(head_split|steps)[.])")
  list(FILTER internals EXCLUDE REGEX "/cuda_tables")
  set(planning ${sources})
  list(FILTER planning INCLUDE REGEX "/src/engine/(model|step_plan)/")
  list(REMOVE_ITEM sources ${internals} ${planning})
  add_library(engine_planning OBJECT ${planning})
  target_link_libraries(engine_planning PRIVATE commsched)
  add_library(engine_checkpoint OBJECT ${checkpoint})
  target_link_libraries(engine_checkpoint
    PUBLIC PkgConfig::xxhash nlohmann_json::nlohmann_json PRIVATE commsched)
  add_library(engine_internals OBJECT ${internals})
  target_link_libraries(engine_internals PRIVATE commsched)
  add_library(commsched_engine SHARED
              ${sources} $<TARGET_OBJECTS:engine_checkpoint>
              $<TARGET_OBJECTS:engine_internals>
              $<TARGET_OBJECTS:engine_planning>)
  target_link_libraries(commsched_engine PUBLIC commsched
    PRIVATE PkgConfig::xxhash nlohmann_json::nlohmann_json Threads::Threads)
  if(COMMSCHED_HAVE_CUDA)
    target_link_libraries(commsched_engine PRIVATE commsched_cuda_kernels)
  endif()
  # The optimizer gives the same bits wherever a shard is cut, so a * b + c may
  # not be fused in vector lanes only; and sqrt without errno vectorises.
  foreach(target engine_checkpoint engine_internals engine_planning commsched_engine)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_options(${target} PRIVATE -ffp-contract=off -fno-math-errno)
    commsched_unity(${target})
  endforeach()
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
  commsched_link_for_wheel(commsched_cli)
  set_target_properties(commsched_cli PROPERTIES
    OUTPUT_NAME commsched
    INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS commsched_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(CMAKE_CROSSCOMPILING)
    return()
  endif()
  # Bash looks for a file of the program's name there.
  set(completion ${PROJECT_BINARY_DIR}/completion/commsched)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/completion)
  add_custom_command(TARGET commsched_cli POST_BUILD
    COMMAND commsched_cli completion > ${completion}
    BYPRODUCTS ${completion} VERBATIM)
  install(FILES ${completion}
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
endfunction()
