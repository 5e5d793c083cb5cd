# The target `header_check`: compiles every header alone that has no source file of its own, so that each includes what it
# uses; the others are the first that their source files include (scripts/checks/headers.py). Not part of `all`; `make
# lint` builds it. One source for each header, so that Ninja knows what is out of date.

function(far_check_headers)
  set(folders include src server preload tools evaluation tests)
  if(FAR_COMPILER)
    list(APPEND folders compiler)
  endif()
  list(TRANSFORM folders REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/\\1/*.h" OUTPUT_VARIABLE patterns)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${patterns})
  set(sources)
  foreach(header ${headers})
    string(REGEX REPLACE "\\.h$" ".cc" own_source ${header})
    # The code of include/far/detail that the library has is compiled in src/dataframe.
    string(REGEX REPLACE "^include/far/detail/" "src/dataframe/" library_source ${own_source})
    if(EXISTS ${PROJECT_SOURCE_DIR}/${own_source} OR EXISTS ${PROJECT_SOURCE_DIR}/${library_source})
      continue()
    endif()
    set(source ${PROJECT_BINARY_DIR}/header_check/${header}.cc)
    if(NOT EXISTS ${source})  # lint writes some for several headers, and leaves others empty (scripts/checks/header_chains.py)
      file(CONFIGURE OUTPUT ${source} @ONLY CONTENT "#include \"${PROJECT_SOURCE_DIR}/${header}\"\n")
    endif()
    list(APPEND sources ${source})
  endforeach()
  add_library(header_check OBJECT EXCLUDE_FROM_ALL ${sources})
  target_include_directories(header_check PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/evaluation ${PROJECT_SOURCE_DIR}/evaluation/bench ${PROJECT_SOURCE_DIR}/tools
    ${PROJECT_SOURCE_DIR}/preload ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR})
  target_compile_options(header_check PRIVATE -O0 -g0)
  if(FAR_COMPILER)
    target_include_directories(header_check SYSTEM PRIVATE ${FARHEAP_LLVM_19})
  endif()
endfunction()
