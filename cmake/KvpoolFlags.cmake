# SPDX-License-Identifier: Apache-2.0
#
# Compiler flags for every target, through the interface target kvpool_flags. Assertions stay on in release builds, so
# NDEBUG is never defined. The instruction set is x86-64 with SSE4.2 (its CRC-32C instruction); whatever goes beyond is
# compiled in files of its own under arch/ and chosen at run time.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug or RelWithDebInfo" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Where ccache is installed, build trees of one checkout share what they compile. The folder of a build tree stands only
# in debug information, so it need not tell entries apart.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER env CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_NOHASHDIR=1 ${CCACHE})
endif()
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  message(FATAL_ERROR "kvpool needs x86-64: the verbs for other processors do not exist yet")
endif()

add_library(kvpool_flags INTERFACE)
target_compile_options(kvpool_flags INTERFACE
  -msse4.2 -Wall -Wextra -Wno-missing-field-initializers -Wvla $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual> -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=
  -fno-omit-frame-pointer)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc 12 reports a false overlap inside std::string's operator+, and calls what an asm goto stores
  # uninitialised. Its note about lines passed by value concerns code compiled by gcc 4.5.
  target_compile_options(kvpool_flags INTERFACE -Wno-restrict -Wno-maybe-uninitialized -Wno-psabi)
endif()
if(KVPOOL_WERROR)
  target_compile_options(kvpool_flags INTERFACE -Werror)
endif()

string(REPLACE "," ";" KVPOOL_SANITIZE_LIST "${KVPOOL_SANITIZE}")
foreach(sanitizer IN LISTS KVPOOL_SANITIZE_LIST)
  if(NOT sanitizer MATCHES "^(address|undefined|thread)$")
    message(FATAL_ERROR "KVPOOL_SANITIZE: '${sanitizer}' is none of address, undefined, thread")
  endif()
  target_compile_options(kvpool_flags INTERFACE -fsanitize=${sanitizer})
  target_link_options(kvpool_flags INTERFACE -fsanitize=${sanitizer})
  target_compile_definitions(kvpool_flags INTERFACE KVPOOL_SANITIZE_${sanitizer}=1)
endforeach()
if(KVPOOL_SANITIZE_LIST)
  # gcc reports false "may be used uninitialised" and bounds findings on instrumented code.
  target_compile_options(kvpool_flags INTERFACE -fno-sanitize-recover=all -Wno-maybe-uninitialized
    $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow>
    $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-truncation>
    -Wno-array-bounds)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(kvpool_flags INTERFACE -Wno-unknown-warning-option -Wno-pass-failed
    -Wno-unknown-attributes)
endif()
