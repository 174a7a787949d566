# The package: headers, libraries, programs, find_package() and pkg-config files,
# and what there is to read. Programs and plugins say for themselves where they go.
include(CMakePackageConfigHelpers)

set(installed commsched)
if(TARGET commsched_engine)
  list(APPEND installed commsched_engine)
endif()
set(namelink)
if(COMMSCHED_WHEEL)
  set(namelink NAMELINK_SKIP)
endif()
install(TARGETS ${installed} EXPORT commschedTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${namelink})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
              ${PROJECT_SOURCE_DIR}/LICENSE
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/commsched)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/commsched)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/commsched)
install(EXPORT commschedTargets NAMESPACE commsched:: DESTINATION ${package_dir})
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/commschedConfig.cmake.in
  ${PROJECT_BINARY_DIR}/commschedConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/commschedConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/commschedConfig.cmake
              ${PROJECT_BINARY_DIR}/commschedConfigVersion.cmake
        DESTINATION ${package_dir})

# The .pc files find the prefix from where they lie, so that an installed tree
# can be moved.
function(commsched_install_pc name)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in
                 ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
file(RELATIVE_PATH COMMSCHED_PC_TO_PREFIX
     ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
commsched_install_pc(commsched)
if(TARGET commsched_engine)
  commsched_install_pc(commsched-engine)
endif()

# All that is installed, and the examples; neither tests nor benchmarks.
get_property(programs DIRECTORY ${PROJECT_SOURCE_DIR} PROPERTY BUILDSYSTEM_TARGETS)
list(FILTER programs INCLUDE REGEX
     "^(commsched|commsched_(engine|cli|plugin_.*)|example_.*)$")
list(FILTER programs EXCLUDE REGEX "skeleton")
if(TARGET commsched-train)
  list(APPEND programs commsched-train)
endif()
add_custom_target(commsched_programs DEPENDS ${programs})
