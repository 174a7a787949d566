# The package: headers, libraries, find_package() and pkg-config files.
include(CMakePackageConfigHelpers)

set(installed commsched)
if(TARGET commsched_engine)
  list(APPEND installed commsched_engine)
endif()
install(TARGETS ${installed} EXPORT commschedTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

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
