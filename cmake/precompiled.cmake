# Most of what a compiler reads for a file of ours are the standard library's headers: half of its time. Targets that are
# compiled with the same flags share one reading of them:
#
#   far_precompile(TARGET [GTEST] [FMT] [JSON] [DEAR])   also GoogleTest's header, or fmt's, or nlohmann's and fmt's
#
# Targets that include nlohmann or fmt, and those that are DEAR, are not optimized under sanitizers: that would take the
# compiler longer than their tests.
# Sources still include what they use: `make clang` builds without precompiled headers, `make lint` the headers alone.
option(FARHEAP_PRECOMPILE "Targets share one reading of the standard library's headers" ON)

set(FAR_PRECOMPILED_STANDARD <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <cstring> <functional> <map>
  <memory> <mutex> <optional> <span> <string> <string_view> <thread> <unordered_map> <utility> <vector>)

function(far_precompile target)
  if(NOT FARHEAP_PRECOMPILE)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 ARG "GTEST;FMT;JSON;DEAR" "" "")
  # ccache wants the compiler to name the precompiled header in what it preprocesses.
  set(options $<IF:$<CXX_COMPILER_ID:GNU>,-fpch-preprocess,SHELL:-Xclang -fno-pch-timestamp>)
  # GCC takes what it precompiled for our code, and warns falsely of what std::string does there (its bug 105329).
  list(APPEND options $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds$<SEMICOLON>-Wno-restrict$<SEMICOLON>-Wno-stringop-overflow$<SEMICOLON>-Wno-stringop-overread>)
  # clang forgets where the library's own precompiled code turns this warning off, as in std::stable_partition().
  list(APPEND options $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
  # Programs are compiled with -fPIE, what is in libraries with -fPIC.
  get_target_property(type ${target} TYPE)
  set(reading far_precompiled_library)
  if(type STREQUAL EXECUTABLE)
    set(reading far_precompiled_program)
  endif()
  set(headers ${FAR_PRECOMPILED_STANDARD})
  set(owners)
  if(ARG_JSON)
    string(APPEND reading _json)
    list(APPEND headers <fmt/format.h> <nlohmann/json.hpp>)
    set(owners fmt::fmt nlohmann_json::nlohmann_json)
  elseif(ARG_FMT)
    string(APPEND reading _fmt)
    list(APPEND headers <fmt/format.h>)
    set(owners fmt::fmt)
  elseif(ARG_GTEST)
    string(APPEND reading _gtest)
    list(APPEND headers <gtest/gtest.h>)
    set(owners GTest::gtest)
  endif()
  # The compiler takes no header that was read without optimization where there is some, or the other way round.
  if(FARHEAP_SANITIZED AND (ARG_JSON OR ARG_FMT OR ARG_DEAR OR (ARG_GTEST AND FAR_TEST_OPTIMIZATION)))
    string(APPEND reading _unoptimized)
    list(APPEND options -O0)
  endif()
  if(NOT TARGET ${reading})
    set(source ${PROJECT_BINARY_DIR}/${reading}.cc)
    file(CONFIGURE OUTPUT ${source} @ONLY CONTENT "int main() {}\n")
    if(type STREQUAL EXECUTABLE)
      add_executable(${reading} EXCLUDE_FROM_ALL ${source})
    else()
      add_library(${reading} OBJECT EXCLUDE_FROM_ALL ${source})
    endif()
    set_target_properties(${reading} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/CMakeFiles)  # no use to anyone
    target_link_libraries(${reading} PRIVATE ${owners})
    target_compile_options(${reading} PRIVATE ${options})
    target_precompile_headers(${reading} PRIVATE ${headers})
  endif()
  target_compile_options(${target} PRIVATE ${options})
  target_precompile_headers(${target} REUSE_FROM ${reading})
endfunction()
