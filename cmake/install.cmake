# The places where `cmake --install` puts files, by component: the packages of packages.cmake are the components. A
# program finds what it preloads relative to itself (tools/run.cc), so the prefix may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(FAR_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/farheap)

install(TARGETS farheap COMPONENT farheap)
install(TARGETS farheap-preload LIBRARY DESTINATION lib/farheap COMPONENT farheap)
install(TARGETS farheapd COMPONENT farheap-server)
install(FILES packaging/farheapd.service DESTINATION lib/systemd/system COMPONENT farheap-server)
install(FILES packaging/farheapd.sysusers DESTINATION lib/sysusers.d RENAME farheapd.conf COMPONENT farheap-server)
install(FILES packaging/farheapd.tmpfiles DESTINATION lib/tmpfiles.d RENAME farheapd.conf COMPONENT farheap-server)

install(TARGETS farheap_shared farheap_static farheap_hints EXPORT farheap COMPONENT libfarheap-dev)
install(DIRECTORY include/far TYPE INCLUDE COMPONENT libfarheap-dev)
install(EXPORT farheap NAMESPACE farheap:: FILE farheap-targets.cmake DESTINATION ${FAR_CMAKE_DIR}
  COMPONENT libfarheap-dev)
configure_package_config_file(packaging/farheap-config.cmake.in farheap-config.cmake INSTALL_DESTINATION ${FAR_CMAKE_DIR})
# As the libraries' SOVERSION says.
write_basic_package_version_file(farheap-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/farheap-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/farheap-config-version.cmake
  DESTINATION ${FAR_CMAKE_DIR} COMPONENT libfarheap-dev)

# `make compiler` builds it; without it the rest is installed alone.
if(FAR_COMPILER)
  install(TARGETS farheap-clang COMPONENT farheap-clang OPTIONAL)
  install(FILES ${PROJECT_BINARY_DIR}/bin/farheap-clang++ TYPE BIN COMPONENT farheap-clang OPTIONAL)
  install(TARGETS farheap-passes LIBRARY DESTINATION lib/farheap COMPONENT farheap-clang OPTIONAL)
  install(FILES ${PROJECT_BINARY_DIR}/lib/libfarheap-compiled.a ${PROJECT_BINARY_DIR}/lib/libfarheap-alone.a DESTINATION lib/farheap COMPONENT farheap-clang OPTIONAL)
  install(FILES cmake/farheap-toolchain.cmake DESTINATION ${FAR_CMAKE_DIR} COMPONENT farheap-clang)
  install(FILES packaging/farheap-clang.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT farheap-clang)
endif()

list(TRANSFORM FAR_STATIC_NEEDS PREPEND "-l" OUTPUT_VARIABLE static_needs)
list(JOIN static_needs " " static_needs)
file(RELATIVE_PATH FAR_PREFIX_FROM_PC ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(packaging/farheap.pc.in farheap.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/farheap.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT libfarheap-dev)
