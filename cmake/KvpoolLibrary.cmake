# SPDX-License-Identifier: Apache-2.0
#
# libkvpool: the objects of all layers once, then a static library (tests and our own tools see everything in it) and a
# shared one that exports what libkvpool/libkvpool.map names.
set(KVPOOL_LAYERS arch media backend transfer pool tier store sched api)
set(KVPOOL_SRC "${CMAKE_SOURCE_DIR}/libkvpool/src")
set(KVPOOL_SOURCES)
foreach(layer IN LISTS KVPOOL_LAYERS)
  file(GLOB sources CONFIGURE_DEPENDS "${KVPOOL_SRC}/${layer}/*.cc")
  if(NOT sources)
    message(STATUS "layer ${layer}: no sources yet")
  endif()
  if(layer MATCHES "^(arch|transfer)$")
    set_property(SOURCE ${sources} APPEND PROPERTY COMPILE_OPTIONS "-O3")
  endif()
  list(APPEND KVPOOL_SOURCES ${sources})
endforeach()

# Code for one instruction set extension stands alone in a file named after it; nothing else may be compiled for it.
function(kvpool_isa suffix)
  set(sources ${KVPOOL_SOURCES})
  list(FILTER sources INCLUDE REGEX "/arch/[^/]*_${suffix}\\.cc$")
  if(sources)
    set_property(SOURCE ${sources} APPEND PROPERTY COMPILE_OPTIONS ${ARGN})
  endif()
endfunction()
kvpool_isa(sse42 -msse4.2)
kvpool_isa(avx2 -mavx2)
kvpool_isa(avx512 -mavx512f -mavx512bw -mavx512vl)
kvpool_isa(movdir64b -mmovdir64b)
kvpool_isa(clflushopt -mclflushopt)
kvpool_isa(clwb -mclwb)

if(NOT KVPOOL_SOURCES)
  set(empty "${CMAKE_BINARY_DIR}/empty.cc")
  file(WRITE "${empty}" "namespace kvpool { extern const int kEmpty; const int kEmpty = 0; }\n")
  set(KVPOOL_SOURCES "${empty}")
endif()

add_library(kvpool_objects OBJECT ${KVPOOL_SOURCES})
target_include_directories(kvpool_objects PUBLIC
  "${KVPOOL_SRC}" "${CMAKE_SOURCE_DIR}/libkvpool/include" "${CMAKE_SOURCE_DIR}/uapi")
target_compile_definitions(kvpool_objects PRIVATE KVPOOL_VERSION_STRING="${PROJECT_VERSION}" KVPOOL_BUILDING=1)
target_link_libraries(kvpool_objects PUBLIC
  PkgConfig::CRYPTO PkgConfig::ISAL PkgConfig::XXHASH PkgConfig::DAXCTL Threads::Threads
  PRIVATE kvpool_flags)
set_target_properties(kvpool_objects PROPERTIES
  C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)

add_library(kvpool_static STATIC $<TARGET_OBJECTS:kvpool_objects>)
add_library(kvpool SHARED $<TARGET_OBJECTS:kvpool_objects>)
target_include_directories(kvpool_static PUBLIC
  "${KVPOOL_SRC}" "${CMAKE_SOURCE_DIR}/libkvpool/include" "${CMAKE_SOURCE_DIR}/uapi")
target_include_directories(kvpool PUBLIC "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/libkvpool/include>")
target_link_libraries(kvpool_static PUBLIC
  PkgConfig::CRYPTO PkgConfig::ISAL PkgConfig::XXHASH PkgConfig::DAXCTL Threads::Threads ${CMAKE_DL_LIBS} rt)
target_link_libraries(kvpool PRIVATE
  PkgConfig::CRYPTO PkgConfig::ISAL PkgConfig::XXHASH PkgConfig::DAXCTL Threads::Threads ${CMAKE_DL_LIBS} rt
  $<BUILD_INTERFACE:kvpool_flags>)
# The soname is 0 until the first release with a lasting ABI.
set_target_properties(kvpool_static PROPERTIES OUTPUT_NAME kvpool LINKER_LANGUAGE CXX)
set_target_properties(kvpool PROPERTIES
  OUTPUT_NAME kvpool VERSION ${PROJECT_VERSION} SOVERSION 0 LINKER_LANGUAGE CXX)
file(GLOB map CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/libkvpool/libkvpool.map")
if(map)
  target_link_options(kvpool PRIVATE "-Wl,--version-script=${map}")
  set_target_properties(kvpool PROPERTIES LINK_DEPENDS "${map}")
endif()
if(NOT (KVPOOL_SANITIZE_LIST AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang"))
  # clang leaves the sanitizer's symbols to the executable, so they cannot be resolved here.
  target_link_options(kvpool PRIVATE -Wl,-z,defs)
endif()
target_link_options(kvpool PRIVATE -Wl,-z,relro -Wl,-z,now)
