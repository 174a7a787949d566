# Plugins: modules that see commsched/plugin.h, what it includes and
# plugins/support, and nothing else of this project.
#
#   plugins/<name>/**.c*          -> lib/commsched/plugins/commsched_<name>.so
#   plugins/skeleton/<kind>/*.c*  -> .../skeletons/commsched_skeleton_<kind>.so
#
# The first are installed. Skeletons are there to be copied; tests load them.

# commsched_plugin(TARGET FOLDER [SUBFOLDER s]): commsched_<TARGET>.so from the
# sources in FOLDER.
function(commsched_plugin target folder)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "SUBFOLDER" "")
  file(GLOB sources CONFIGURE_DEPENDS
    ${folder}/*.c ${folder}/*.cc ${folder}/*/*.cc)
  add_library(commsched_plugin_${target} MODULE ${sources})
  target_include_directories(commsched_plugin_${target} PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/plugins)
  # What is released with the library has its version.
  target_compile_definitions(commsched_plugin_${target} PRIVATE
    COMMSCHED_VERSION_STRING="${PROJECT_VERSION}")
  target_link_libraries(commsched_plugin_${target} PRIVATE Threads::Threads)
  commsched_link_for_wheel(commsched_plugin_${target})
  # The same bits everywhere: a * b + c is not fused.
  target_compile_options(commsched_plugin_${target} PRIVATE -ffp-contract=off)
  commsched_unity(commsched_plugin_${target})
  target_link_options(commsched_plugin_${target} PRIVATE -Wl,--no-undefined)
  if(COMMSCHED_SANITIZE)
    # clang leaves the sanitizers' symbols to the program that loads the module.
    target_link_options(commsched_plugin_${target} PRIVATE -Wl,-z,undefs)
  endif()
  set_target_properties(commsched_plugin_${target} PROPERTIES
    PREFIX "" OUTPUT_NAME commsched_${target}
    LIBRARY_OUTPUT_DIRECTORY
      ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/commsched/plugins/${arg_SUBFOLDER})
endfunction()

function(commsched_add_plugins)
  foreach(name bf16_codec int8_codec)
    string(REGEX REPLACE "_(codec|policy|observer)$" "" short ${name})
    commsched_plugin(${short} ${PROJECT_SOURCE_DIR}/plugins/${name})
    install(TARGETS commsched_plugin_${short}
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/commsched/plugins)
  endforeach()
  commsched_plugin(fault ${PROJECT_SOURCE_DIR}/plugins/fault)
  install(TARGETS commsched_plugin_fault
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/commsched/plugins)
  if(COMMSCHED_HAVE_UCX)
    commsched_plugin(ucx ${PROJECT_SOURCE_DIR}/plugins/ucx)
    target_link_libraries(commsched_plugin_ucx PRIVATE PkgConfig::ucx)
    install(TARGETS commsched_plugin_ucx
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/commsched/plugins)
  endif()
  if(COMMSCHED_HAVE_CUDA)
    commsched_plugin(nccl ${PROJECT_SOURCE_DIR}/plugins/nccl)
    target_include_directories(commsched_plugin_nccl SYSTEM PRIVATE
      ${COMMSCHED_CUDA_INCLUDE_DIR} ${COMMSCHED_NCCL_INCLUDE_DIR})
    target_link_libraries(commsched_plugin_nccl PRIVATE commsched_cuda_kernels)
    install(TARGETS commsched_plugin_nccl
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/commsched/plugins)
  endif()
  if(COMMSCHED_HAVE_TESTS)
    foreach(kind backend policy codec observer)
      commsched_plugin(skeleton_${kind}
        ${PROJECT_SOURCE_DIR}/plugins/skeleton/${kind} SUBFOLDER skeletons)
    endforeach()
  endif()
endfunction()
