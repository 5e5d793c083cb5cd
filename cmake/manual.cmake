# The target `manual`: pages of the manual, made from what the programs say with --help.
find_program(FARHEAP_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(FARHEAP_PYTHON python3 REQUIRED)

add_custom_target(manual ALL)

# far_manual_page(PROGRAM SECTION COMPONENT OTHER_PAGE): makes and installs it.
function(far_manual_page program section component other)
  set(page ${PROJECT_BINARY_DIR}/manual/${program}.${section}.gz)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/manual)
  add_custom_command(OUTPUT ${page}
    COMMAND ${FARHEAP_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/make-manual $<TARGET_FILE:${program}> ${section} ${page} ${other}
    DEPENDS ${program} ${PROJECT_SOURCE_DIR}/scripts/make-manual
    VERBATIM)
  add_custom_target(manual_${program} DEPENDS ${page})
  add_dependencies(manual manual_${program})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT ${component})
endfunction()

far_manual_page(farheap 1 farheap "farheapd(8)")
far_manual_page(farheapd 8 farheap-server "farheap(1)")
