# far_app(NAME SOURCES ... [LIBRARIES ...] [TESTS ...]): a program of apps/ in three builds from the same sources, NAME with hints,
# NAME-basic with what extends them left out, and NAME-unhinted without, in build/bin/apps. Like any program of a user it
# links nothing of Farheap. TESTS are compiled together with the sources, main.cc excepted.
function(far_app name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;LIBRARIES;TESTS")
  find_package(CLI11 REQUIRED)
  find_package(nlohmann_json REQUIRED)
  find_package(fmt REQUIRED)
  set(libraries ${ARG_LIBRARIES} CLI11::CLI11 nlohmann_json::nlohmann_json fmt::fmt Threads::Threads ${CMAKE_DL_LIBS})
  foreach(target ${name} ${name}-basic ${name}-unhinted)
    add_executable(app_${target} ${ARG_SOURCES})
    set_target_properties(app_${target} PROPERTIES OUTPUT_NAME ${target}
      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/apps)
    target_include_directories(app_${target} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
    target_link_libraries(app_${target} PRIVATE ${libraries})
  endforeach()
  target_compile_definitions(app_${name}-basic PRIVATE APP_BASIC_HINTS)
  target_compile_definitions(app_${name}-unhinted PRIVATE APP_WITHOUT_HINTS)

  list(FILTER ARG_SOURCES EXCLUDE REGEX "main\\.cc$")
  foreach(test_source ${ARG_TESTS})
    get_filename_component(test_name ${test_source} NAME_WE)
    far_test(app_${name}_${test_name} SOURCES ${test_source} ${ARG_SOURCES} DEPENDS ${libraries})
    target_include_directories(app_${name}_${test_name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
  endforeach()
endfunction()
