# What `cmake --install` installs. Components: runtime, development, tools.
# SPDX-License-Identifier: MIT
set(development ${CMAKE_INSTALL_LIBDIR}/cmake/hakmem)

install(TARGETS hakmem hakmem_static EXPORT hakmemTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
# One path on every architecture, for what a Dockerfile names: where the libraries lie elsewhere, a link in lib.
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" AND NOT CMAKE_INSTALL_LIBDIR STREQUAL lib)
  file(RELATIVE_PATH library /lib "/${CMAKE_INSTALL_LIBDIR}/libhakmem.so.0")
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/link)
  file(CREATE_LINK ${library} ${PROJECT_BINARY_DIR}/link/libhakmem.so SYMBOLIC)
  install(FILES ${PROJECT_BINARY_DIR}/link/libhakmem.so DESTINATION lib COMPONENT runtime)
endif()
install(FILES LICENSE THIRD_PARTY.md DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/hakmem COMPONENT runtime)

install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN hakmem.h* PATTERN jemalloc.h PATTERN third_party EXCLUDE)
install(EXPORT hakmemTargets NAMESPACE hakmem:: DESTINATION ${development} COMPONENT development)
configure_package_config_file(cmake/hakmemConfig.cmake.in ${PROJECT_BINARY_DIR}/hakmemConfig.cmake
                              INSTALL_DESTINATION ${development})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hakmemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hakmemConfig.cmake ${PROJECT_BINARY_DIR}/hakmemConfigVersion.cmake
        DESTINATION ${development} COMPONENT development)
configure_file(cmake/install_pc.cmake.in ${PROJECT_BINARY_DIR}/install_pc.cmake @ONLY)
install(SCRIPT ${PROJECT_BINARY_DIR}/install_pc.cmake COMPONENT development)

install(FILES docs/block.py docs/heaps.gdb cli/assets/grafana.json DESTINATION ${CMAKE_INSTALL_DATADIR}/hakmem
  COMPONENT tools)
configure_file(cmake/install_command.cmake.in ${PROJECT_BINARY_DIR}/install_command.cmake @ONLY)
install(SCRIPT ${PROJECT_BINARY_DIR}/install_command.cmake COMPONENT tools)
