# Sets FAR_VERSION, the project's version, from the header that states it.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../include/far/version.h lines REGEX "^#define FAR_VERSION_[A-Z]+ [0-9]+$")
string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
list(LENGTH numbers count)
if(NOT count EQUAL 3)
  message(FATAL_ERROR "include/far/version.h must define FAR_VERSION_MAJOR, _MINOR and _PATCH, each as a number")
endif()
list(JOIN numbers "." FAR_VERSION)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/../include/far/version.h)
