# Compiler settings shared by every target, and the functions that the folders use to declare what they build.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

option(FARHEAP_SANITIZED "This build is under a sanitizer, without the tests that cannot run there" OFF)
option(FARHEAP_WERROR "Warnings end the build" ${PROJECT_IS_TOP_LEVEL})
option(FARHEAP_FUZZ "This build is for libFuzzer: tests/fuzz is built for it too" OFF)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The settings that ccache asks for where precompiled headers are used.
  # `env` takes a tenth of the time of `cmake -E env`.
  set(launcher env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

# Options of this folder and those below: a project that has this one inside it gets none of them.
add_compile_options(-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
if(FARHEAP_WERROR)
  add_compile_options(-Werror)
endif()
# Thread-local variables of the runtime are read inside malloc and inside fault handlers, where the dynamic TLS model
# could allocate. Inline code of include/far says there what it relies on.
add_compile_options(-ftls-model=initial-exec -fno-omit-frame-pointer)

# far_library(NAME SOURCES ... [DEPENDS ...] [TESTS ...] [TWICE ...] [JSON] [DEAR]): the static library of a folder, and the unit
# tests beside it, TWICE those with that label (far_test); JSON where most of it includes fmt or nlohmann, DEAR where it takes the
# compiler long (precompiled.cmake).
function(far_library name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "JSON;DEAR" "" "SOURCES;DEPENDS;TESTS;TWICE")
  add_library(${name} STATIC ${ARG_SOURCES})
  set(reading)
  foreach(one JSON DEAR)
    if(ARG_${one})
      list(APPEND reading ${one})
    endif()
  endforeach()
  far_precompile(${name} ${reading})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS})
  # Locks are stated in types (base/thread_annotations.h). Tests may do without: they look at one thread's state.
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>)
  foreach(test_source ${ARG_TESTS})
    get_filename_component(test_name ${test_source} NAME_WE)
    far_test(${name}_${test_name} SOURCES ${test_source} DEPENDS ${name})
  endforeach()
  foreach(test_source ${ARG_TWICE})
    get_filename_component(test_name ${test_source} NAME_WE)
    far_test(${name}_${test_name} SOURCES ${test_source} DEPENDS ${name} LABELS twice)
  endforeach()
endfunction()

# far_command_line(SOURCES ...): sources that include CLI11 or make texts of JSON and fmt, which is dear to optimize, and whose
# code runs once.
function(far_command_line)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:RelWithDebInfo>:-O1>")
endfunction()

# The test programs that run under sanitizers; `scripts/run-tests` builds this target in the sanitized builds, and the
# soak builds it in `release`. Apart from it, `all` has those alone that run in `release` each time.
add_custom_target(sanitized_tests)

# How the sources of tests are compiled. Under sanitizers half of the compiler's time would go into optimizing them.
set(FAR_TEST_OPTIMIZATION $<IF:$<BOOL:${FARHEAP_SANITIZED}>,-O0,$<$<CONFIG:RelWithDebInfo>:-O1>>)

find_program(MOLD_PROGRAM mold)

# far_test(NAME SOURCES ... [DEPENDS ...] [ARGS ...] [LABELS ...] [TIMEOUT SECONDS]): one GoogleTest program, one ctest
# entry. Labels that mean something to scripts/run-tests (CONTRIBUTING.md, "Tests"):
#   unit, contract, simulation   runs under sanitizers, and in `release` in the soak; `unit` when there is no label
#   twice                        beside one of these: also in `release` each time
#   unsanitized                  beside one of these: not under sanitizers, but in `release`
#   exclusive                    alone on the machine, no other test beside it
#   soak                         only in `make soak`
# Where tests are out of scope (scope.cmake), it declares nothing.
function(far_test name)
  if(NOT FAR_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS;ARGS")
  if(NOT ARG_LABELS MATCHES "unit|contract|simulation")
    list(APPEND ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)  # sanitized, four at once on two busy cores, the longest took 260
  endif()
  set(except)
  if("${ARG_LABELS}" MATCHES "(^|;)(unit|contract|simulation)($|;)" AND NOT "unsanitized" IN_LIST ARG_LABELS)
    list(APPEND ARG_LABELS sanitized)
    add_dependencies(sanitized_tests ${name})
    if(NOT "twice" IN_LIST ARG_LABELS)
      list(APPEND ARG_LABELS once)
      set(except EXCLUDE_FROM_ALL)
    endif()
  endif()
  add_executable(${name} ${except} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} far_test_headers GTest::gtest GTest::gtest_main)
  # The tested code is optimized as users have it. A folder whose headers do the work sets FAR_TEST_OPTIMIZATION empty.
  target_compile_options(${name} PRIVATE ${FAR_TEST_OPTIMIZATION})
  far_precompile(${name} GTEST)
  if(MOLD_PROGRAM)
    target_link_options(${name} PRIVATE -fuse-ld=mold)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
  if("exclusive" IN_LIST ARG_LABELS)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# far_long_tests(NAME ...): these begin among the first, so that none is left over at the end.
function(far_long_tests)
  if(FAR_TESTS)
    set_tests_properties(${ARGN} PROPERTIES COST 300)
  endif()
endfunction()

# far_bundled_program(NAME): where it is built, it finds libraries beside itself in ../lib before the system's, and so do these
# theirs (RPATH, not RUNPATH). scripts/make-wheel packs that one; the installed one uses the system's alone.
function(far_bundled_program name)
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${name} PROPERTIES BUILD_RPATH "$ORIGIN/../lib")
endfunction()
