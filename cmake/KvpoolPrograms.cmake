# SPDX-License-Identifier: Apache-2.0
#
# Programs a user runs: the one tool, and the numbered examples.
file(GLOB tool_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tools/*.cc")
if(tool_sources)
  add_executable(kvpool_tool ${tool_sources})
  set_target_properties(kvpool_tool PROPERTIES OUTPUT_NAME kvpool)
  target_include_directories(kvpool_tool PRIVATE "${CMAKE_SOURCE_DIR}/tools" SYSTEM PRIVATE "${CLI11_INCLUDE}")
  target_compile_definitions(kvpool_tool PRIVATE KVPOOL_VERSION_STRING="${PROJECT_VERSION}")
  target_link_libraries(kvpool_tool PRIVATE kvpool_static fmt::fmt nlohmann_json::nlohmann_json kvpool_flags)
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
