# SPDX-License-Identifier: Apache-2.0
#
# What `make install` puts where: libraries, public headers, the tool, man pages, completion, pkg-config and CMake files.
include(CMakePackageConfigHelpers)
install(TARGETS kvpool EXPORT kvpool-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES $<TARGET_FILE:kvpool_static> DESTINATION ${CMAKE_INSTALL_LIBDIR})
file(GLOB public_headers CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/libkvpool/include/kvpool/*")
if(public_headers)
  install(FILES ${public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kvpool)
endif()
if(TARGET kvpool_tool)
  install(TARGETS kvpool_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
foreach(page IN LISTS KVPOOL_PAGES)
  string(REGEX MATCH "[0-9]$" section "${page}")
  install(FILES "${page}" DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
file(GLOB bash_completion CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tools/completion/kvpool.bash")
if(bash_completion)
  install(FILES "${CMAKE_SOURCE_DIR}/tools/completion/kvpool.bash"
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME kvpool)
endif()
file(GLOB zsh_completion CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tools/completion/_kvpool")
if(zsh_completion)
  install(FILES "${CMAKE_SOURCE_DIR}/tools/completion/_kvpool"
          DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()

configure_file("${CMAKE_SOURCE_DIR}/packaging/kvpool.pc.in" "${CMAKE_BINARY_DIR}/kvpool.pc" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/kvpool.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_package_config_file("${CMAKE_SOURCE_DIR}/packaging/kvpool-config.cmake.in"
  "${CMAKE_BINARY_DIR}/kvpool-config.cmake" INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvpool
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/kvpool-config-version.cmake"
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/kvpool-config.cmake" "${CMAKE_BINARY_DIR}/kvpool-config-version.cmake"
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvpool)
install(EXPORT kvpool-targets NAMESPACE kvpool:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvpool)
