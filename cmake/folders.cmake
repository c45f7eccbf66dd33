# SPDX-License-Identifier: Apache-2.0
# One object library per folder of rapt/, so that docs/layers.md is also how it is built. Files: NAME.cc,
# tests NAME_test.cc (and op_test.cc, the harness), kernels NAME_cpu.cc (compiled once per instruction set by
# rapt_kernels).
set(RAPT_OBJECTS "")
set(RAPT_TEST_SOURCES "")

# Headers of the standard library take a third of a source's time: they are compiled once. A build of
# everything by g++ goes without, so that a source that forgets an include is found (scripts/test --long gcc).
if(CMAKE_CXX_COMPILER_ID MATCHES Clang OR RAPT_TEST_SET STREQUAL core)
  set(RAPT_PRECOMPILE ON)
endif()
function(rapt_precompile target)
  if(RAPT_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE <algorithm> <array> <charconv> <chrono> <cmath> <cstring>
                              <filesystem> <functional> <map>
                              <memory> <optional> <set> <span> <string> <string_view> <variant> <vector>)
  endif()
endfunction()

# Several sources as one: their headers are read and their templates compiled once, a third of the time for
# these folders. For a program that is built once and run (RAPT_ISAS=own) and for the sanitized builds of CI,
# not for the release, where one changes a line and waits. Behind the target: sources that name something in
# their own namespace like another one does.
function(rapt_join target)
  if(RAPT_ISAS STREQUAL "own" OR RAPT_SANITIZE)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# rapt_folder(NAME [REGEX]): all its sources, or those that match.
function(rapt_folder name)
  file(GLOB all CONFIGURE_DEPENDS rapt/${name}/*.cc)
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER all EXCLUDE REGEX "_(test|cpu)\\.cc$")
  if(ARGN)
    list(FILTER all INCLUDE REGEX "${ARGN}")
  endif()
  set(RAPT_TEST_SOURCES ${RAPT_TEST_SOURCES} ${tests} PARENT_SCOPE)
  if(all)
    string(REPLACE / _ target rapt_${name})
    add_library(${target} OBJECT ${all})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
    # What one precompiled header serves must be optimised alike. Under a sanitizer nothing waits for the code
    # of these three, and checks that are not optimised compile in two thirds of the time.
    set(first rapt_base)
    if(RAPT_SANITIZE AND name MATCHES "^(report|inspect|lab)$")
      set(first rapt_report)
      target_compile_options(${target} PRIVATE -O0)
    elseif(name STREQUAL lab)
      target_compile_options(${target} PRIVATE -O1)
    endif()
    if(target STREQUAL first)
      rapt_precompile(${target})
    elseif(RAPT_PRECOMPILE)
      target_precompile_headers(${target} REUSE_FROM ${first})
    endif()
    if(RAPT_FUZZ)  # tells the fuzzer where it went; every folder, since they share one precompiled header
      target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
    endif()
    set(RAPT_OBJECTS ${RAPT_OBJECTS} ${target} PARENT_SCOPE)
  endif()
endfunction()

# The instruction set that this machine runs: under the sanitizers its kernels carry the checks.
function(rapt_own_isa out)
  set(isa scalar)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(isa neon)
  elseif(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
    if(flags MATCHES " avx512_vnni( |$)")
      set(isa avx512)
    elseif(flags MATCHES " avx2( |$)")
      set(isa avx2)
    endif()
  endif()
  set(${out} ${isa} PARENT_SCOPE)
endfunction()

# The kernels of every op for one instruction set, in its own namespace (RAPT_ISA).
function(rapt_kernels isa)
  rapt_own_isa(own)
  if(RAPT_ISAS STREQUAL "own" AND NOT isa STREQUAL own AND (RAPT_ONLY_COMPILES OR NOT isa STREQUAL f64))
    return()
  endif()
  string(TOUPPER ${isa} name)
  target_compile_definitions(rapt_device PRIVATE RAPT_HAVE_${name})
  file(GLOB kernels CONFIGURE_DEPENDS rapt/ops/*_cpu.cc)
  set(target rapt_kernels_${isa})
  add_library(${target} OBJECT ${kernels})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE RAPT_ISA=${isa})
  if(RAPT_SANITIZE AND NOT isa STREQUAL own)
    # The same sources as the set that runs here: checks in one of them are enough. The others are compiled as
    # a release compiles them, so that ccache has them from there.
    set_property(TARGET ${target} PROPERTY COMPILE_OPTIONS ${RAPT_PLAIN_OPTIONS})
    set(RAPT_SANITIZE "")
  endif()
  target_compile_options(${target} PRIVATE ${ARGN} -Wno-unused-function -Wno-psabi)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # Its own intrinsics.
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized -Wno-uninitialized)
  endif()
  # Unoptimised tiles would take minutes to run. The sets that nobody waits for are spared the last percent.
  if(RAPT_ONLY_COMPILES)
    target_compile_options(${target} PRIVATE -O0)
  elseif(NOT isa STREQUAL own AND RAPT_ISAS STREQUAL "own")
    target_compile_options(${target} PRIVATE -O1)
  elseif(RAPT_SANITIZE OR isa MATCHES "^(f64|scalar)$")
    target_compile_options(${target} PRIVATE -O2)
  else()
    target_compile_options(${target} PRIVATE -O3)
  endif()
  if(RAPT_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # Unrolled tiles with a check beside every load take four times as long to compile. Address checks are
    # called instead of inlined, and of undefined behaviour only what an address check would not stop anyway
    # is left (90 s -> 22 s for attention's backward).
    target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment,pointer-overflow
                           "SHELL:-mllvm -asan-instrumentation-with-call-threshold=0")
  endif()
  set(RAPT_OBJECTS ${RAPT_OBJECTS} ${target} PARENT_SCOPE)
endfunction()

# The headers that users see: rapt/rapt.h and what it includes. tests/layering_test.cc reads this list.
set(RAPT_PUBLIC_HEADERS rapt/rapt.h rapt/error.h rapt/export.h rapt/api/device.h rapt/api/look.h
    rapt/api/model.h rapt/api/session.h
    rapt/api/train.h)

# rapt: the archive, which the program and the tests link too, since they use the inside. rapt_shared: the
# same objects as a shared library that shows the public names alone; built where it is asked for by name, or
# with RAPT_SHARED, which then installs it instead.
macro(rapt_library)
  add_library(rapt STATIC)
  set(libraries rapt)
  if(RAPT_TEST_SET STREQUAL all)
    add_library(rapt_shared SHARED EXCLUDE_FROM_ALL)
    set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
    # Before 1.0 a minor version may break callers.
    set_target_properties(rapt_shared PROPERTIES OUTPUT_NAME rapt EXPORT_NAME rapt VERSION ${PROJECT_VERSION}
                          LINK_DEPENDS ${exports}
                          SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    target_link_options(rapt_shared PRIVATE -Wl,--version-script=${exports} -Wl,--no-undefined)
    list(APPEND libraries rapt_shared)
  endif()
  foreach(library ${libraries})
    foreach(object ${RAPT_OBJECTS})
      target_sources(${library} PRIVATE $<TARGET_OBJECTS:${object}>)
    endforeach()
    target_include_directories(${library} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
        $<INSTALL_INTERFACE:include>)
    target_compile_features(${library} PUBLIC cxx_std_20)
  endforeach()
  target_link_libraries(rapt PUBLIC Threads::Threads ZLIB::ZLIB JPEG::JPEG ${CMAKE_DL_LIBS}
                        ${RAPT_TLS_LIBRARIES})
  set(RAPT_INSTALLED rapt)
  if(TARGET rapt_shared)
    target_link_libraries(rapt_shared PRIVATE Threads::Threads ZLIB::ZLIB JPEG::JPEG ${CMAKE_DL_LIBS}
                        ${RAPT_TLS_LIBRARIES})
    if(RAPT_SHARED)
      set_target_properties(rapt_shared PROPERTIES EXCLUDE_FROM_ALL OFF)
      set(RAPT_INSTALLED rapt_shared)
    endif()
  endif()
  add_library(rapt::rapt ALIAS ${RAPT_INSTALLED})
endmacro()
