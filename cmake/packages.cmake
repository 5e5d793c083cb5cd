# Debian packages, one of each component of install.cmake: `make deb`, or cpack in the build folder.
set(CPACK_COMPONENTS_ALL farheap farheap-server libfarheap-dev)
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${component})
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${component} RENAME copyright COMPONENT ${component})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_OUTPUT_FILE_PREFIX ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_CONTACT "The Farheap developers <farheap@localhost>")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_COMPONENT_FARHEAP_DESCRIPTION "Far memory in user space: the command farheap
Runs programs that may use more memory than they are given. Cold memory goes
to an SSD, or to the memory of other machines.")
set(CPACK_COMPONENT_FARHEAP-SERVER_DESCRIPTION "Far memory in user space: the memory server
Lends the memory of this machine to programs that run under farheap.")
set(CPACK_DEBIAN_FARHEAP-SERVER_PACKAGE_CONTROL_EXTRA
  ${PROJECT_SOURCE_DIR}/packaging/debian/postinst ${PROJECT_SOURCE_DIR}/packaging/debian/prerm)
set(CPACK_COMPONENT_LIBFARHEAP-DEV_DESCRIPTION "Far memory in user space: libraries and headers
Far pointers, scopes, fibers and hints for C++ programs; hints for C programs.")
set(CPACK_DEBIAN_LIBFARHEAP-DEV_PACKAGE_SECTION libdevel)
# For the static library.
set(CPACK_DEBIAN_LIBFARHEAP-DEV_PACKAGE_DEPENDS "libboost-context-dev, liburing-dev, libhiredis-dev, libc-ares-dev, liblz4-dev, libzstd-dev, libssl-dev")
include(CPack)
