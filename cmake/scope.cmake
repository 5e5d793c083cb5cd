# The scope of a build folder is the part of the project that it knows. Nothing else is looked for or built, so that
# `make run` on a fresh machine needs few packages and no test. scripts/configure widens it as needed.
#
#   run        the run door: build/bin/farheap and what it preloads
#   products   also the memory server, the link door, the examples and the programs with hints
#   all        also every test and benchmark
#
# As a part of another project (add_subdirectory, FetchContent) it is `products`, without examples, and nothing is installed
# unless it says so.
set(default all)
if(NOT PROJECT_IS_TOP_LEVEL)
  set(default products)
endif()
option(FARHEAP_INSTALL "What others use is installed" ${PROJECT_IS_TOP_LEVEL})
set(FARHEAP_SCOPE ${default} CACHE STRING "How much is configured: run, products or all")
set_property(CACHE FARHEAP_SCOPE PROPERTY STRINGS run products all)
if(NOT FARHEAP_SCOPE MATCHES "^(run|products|all)$")
  message(FATAL_ERROR "FARHEAP_SCOPE is '${FARHEAP_SCOPE}'; it can be run, products or all")
endif()

set(FAR_PRODUCTS ON)
if(FARHEAP_SCOPE STREQUAL run)
  set(FAR_PRODUCTS OFF)
endif()
set(FAR_TESTS OFF)
if(FARHEAP_SCOPE STREQUAL all)
  set(FAR_TESTS ON)
endif()

# Under a sanitizer there is no run door.
set(FAR_INSTALL OFF)
if(FARHEAP_INSTALL AND FAR_PRODUCTS AND NOT FARHEAP_SANITIZED)
  set(FAR_INSTALL ON)
endif()

# The targets that the Makefile builds.
function(far_name_products)
  if(FARHEAP_SANITIZED OR NOT PROJECT_IS_TOP_LEVEL)
    return()
  endif()
  add_custom_target(run_door DEPENDS farheap farheap-preload)
  if(FAR_PRODUCTS)
    add_custom_target(products DEPENDS run_door farheapd farheap_shared farheap_static farheap-python)
  endif()
endfunction()
