# cmake -DCMAKE_TOOLCHAIN_FILE=.../lib/cmake/farheap/farheap-toolchain.cmake: a project is compiled by farheap-clang.
find_program(FARHEAP_CLANG_WRAPPER farheap-clang
  HINTS ${CMAKE_CURRENT_LIST_DIR}/../../../bin ${CMAKE_CURRENT_LIST_DIR}/../../../../bin REQUIRED)
set(CMAKE_C_COMPILER ${FARHEAP_CLANG_WRAPPER})
set(CMAKE_CXX_COMPILER ${FARHEAP_CLANG_WRAPPER}++)
