# How much of the project a build folder knows: what is not in its scope is neither looked for nor built, so that
# `make run` on a fresh machine needs few packages and no test. scripts/configure widens it as needed.
#
#   run        the run door: build/bin/farheap and what it preloads
#   products   also the memory server, the link door, the examples and the programs with hints
#   all        also every test and benchmark
set(FARHEAP_SCOPE all CACHE STRING "How much is configured: run, products or all")
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

# The targets that the Makefile builds. Under a sanitizer there is no run door.
function(far_name_products)
  if(FARHEAP_SANITIZED)
    return()
  endif()
  add_custom_target(run_door DEPENDS farheap farheap-preload)
  if(FAR_PRODUCTS)
    add_custom_target(products DEPENDS run_door farheapd far_heap)
  endif()
endfunction()
