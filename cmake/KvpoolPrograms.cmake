# SPDX-License-Identifier: Apache-2.0
#
# Programs a user runs: the one tool, and the numbered examples.
# The tool's parts are libraries, so that tests use its trace readers and torture its processes without main.
file(GLOB trace_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tools/trace/*.cc")
if(trace_sources)
  add_library(kvpool_trace STATIC EXCLUDE_FROM_ALL ${trace_sources})
  target_include_directories(kvpool_trace PUBLIC "${CMAKE_SOURCE_DIR}/tools")
  target_link_libraries(kvpool_trace PRIVATE fmt::fmt nlohmann_json::nlohmann_json kvpool_flags)
endif()
file(GLOB tool_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tools/*.cc" "${CMAKE_SOURCE_DIR}/tools/*/*.cc")
if("${CMAKE_SOURCE_DIR}/tools/main.cc" IN_LIST tool_sources)
  list(REMOVE_ITEM tool_sources "${CMAKE_SOURCE_DIR}/tools/main.cc" ${trace_sources})
  add_library(kvpool_toolkit STATIC EXCLUDE_FROM_ALL ${tool_sources})
  target_include_directories(kvpool_toolkit PUBLIC "${CMAKE_SOURCE_DIR}/tools")
  target_link_libraries(kvpool_toolkit PUBLIC kvpool_trace kvpool_static fmt::fmt nlohmann_json::nlohmann_json
                        PRIVATE kvpool_flags)
  add_executable(kvpool_tool "${CMAKE_SOURCE_DIR}/tools/main.cc")
  set_target_properties(kvpool_tool PROPERTIES OUTPUT_NAME kvpool)
  target_compile_definitions(kvpool_tool PRIVATE KVPOOL_VERSION_STRING="${PROJECT_VERSION}")
  target_link_libraries(kvpool_tool PRIVATE kvpool_toolkit kvpool_flags)
else()
  message(STATUS "tools: no sources yet")
endif()

file(GLOB example_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/examples/*.c" "${CMAKE_SOURCE_DIR}/examples/*.cc")
foreach(source IN LISTS example_sources)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(example_${name} "${source}")
  set_target_properties(example_${name} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin/examples")
  target_link_libraries(example_${name} PRIVATE kvpool kvpool_flags)
endforeach()

# Man pages: written in scdoc, dated from the last commit so that a build of the same commit gives the same page.
find_program(SCDOC scdoc REQUIRED)
execute_process(COMMAND git log -1 --format=%ct WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}"
                OUTPUT_VARIABLE KVPOOL_DATE OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT KVPOOL_DATE)
  file(TIMESTAMP "${CMAKE_SOURCE_DIR}/VERSION" KVPOOL_DATE "%s" UTC)
endif()
file(GLOB page_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/Documentation/man/*.scd")
set(KVPOOL_PAGES)
foreach(source IN LISTS page_sources)
  get_filename_component(page "${source}" NAME_WLE)
  add_custom_command(OUTPUT "${CMAKE_BINARY_DIR}/man/${page}"
    COMMAND ${CMAKE_COMMAND} -E make_directory "${CMAKE_BINARY_DIR}/man"
    COMMAND ${CMAKE_COMMAND} -E env SOURCE_DATE_EPOCH=${KVPOOL_DATE} sh -c
            "'${SCDOC}' < '${source}' > '${CMAKE_BINARY_DIR}/man/${page}'"
    DEPENDS "${source}" VERBATIM)
  list(APPEND KVPOOL_PAGES "${CMAKE_BINARY_DIR}/man/${page}")
endforeach()
add_custom_target(man_pages ALL DEPENDS ${KVPOOL_PAGES})
