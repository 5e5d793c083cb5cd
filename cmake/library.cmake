# libfarheap, shared and static: the static libraries of src/ in one. It shows what include/far marks FAR_API. A project
# that links it names farheap::farheap_shared or farheap::farheap_static; farheap::farheap is the static one where
# BUILD_SHARED_LIBS is defined and off, and the shared one otherwise, here and in packaging/farheap-config.cmake.in
# alike. farheap::hints is for programs with hints, in C or C++: a header, and nothing of the library.

set(parts far_dataframe far_heap far_device far_fiber far_pager far_control far_engine far_backend far_backend_common far_backend_tcp far_backend_redis far_backend_shm
          far_backend_replicated far_backend_striped far_backend_zmem far_wire far_platform far_base)
set(objects ${parts})
list(TRANSFORM objects REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
# Others' libraries that are part of the shared one. A program that links the static one links them, too; there they go
# by name, so that the package does not depend on where this machine keeps them.
set(Boost_USE_STATIC_LIBS ON)
find_package(Boost REQUIRED COMPONENTS context)  # its target is known only where it was looked for
set(others Boost::context ${FARHEAP_LIBURING} ${FARHEAP_LIBHIREDIS} ${FARHEAP_LIBCARES} ${FARHEAP_LIBLZ4} ${FARHEAP_LIBZSTD} ${FARHEAP_LIBSSL} ${FARHEAP_LIBCRYPTO})
set(FAR_STATIC_NEEDS boost_context uring hiredis cares lz4 zstd ssl crypto)

add_library(farheap_shared SHARED ${objects})
set(map ${PROJECT_SOURCE_DIR}/packaging/libfarheap.map)
target_link_options(farheap_shared PRIVATE -Wl,--exclude-libs,ALL -Wl,--version-script=${map})
target_link_libraries(farheap_shared PRIVATE ${others} PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
# Before 1.0 a minor version may change any interface.
set_target_properties(farheap_shared PROPERTIES LINK_DEPENDS ${map}
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

add_library(farheap_static STATIC ${objects})
target_link_libraries(farheap_static INTERFACE
  "$<BUILD_INTERFACE:${others}>" "$<INSTALL_INTERFACE:${FAR_STATIC_NEEDS}>" Threads::Threads ${CMAKE_DL_LIBS})

add_library(farheap_hints INTERFACE)
target_link_libraries(farheap_hints INTERFACE ${CMAKE_DL_LIBS})
set_target_properties(farheap_hints PROPERTIES EXPORT_NAME hints)
add_library(farheap::hints ALIAS farheap_hints)

foreach(library farheap_shared farheap_static)
  set_target_properties(${library} PROPERTIES OUTPUT_NAME farheap LINKER_LANGUAGE CXX)
  target_compile_features(${library} INTERFACE cxx_std_20)
  add_library(farheap::${library} ALIAS ${library})
endforeach()
foreach(library farheap_shared farheap_static farheap_hints)
  target_include_directories(${library} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
endforeach()
if(DEFINED BUILD_SHARED_LIBS AND NOT BUILD_SHARED_LIBS)
  add_library(farheap::farheap ALIAS farheap_static)
else()
  add_library(farheap::farheap ALIAS farheap_shared)
endif()
