# SPDX-License-Identifier: Apache-2.0
# One object library per folder of rapt/, so that docs/layers.md is also how it is built. Files: NAME.cc, tests NAME_test.cc
# (and op_test.cc, the harness), kernels NAME_cpu.cc (compiled once per instruction set by rapt_kernels).
set(RAPT_OBJECTS "")
set(RAPT_TEST_SOURCES "")

# Headers of the standard library take a third of a source's time: clang compiles them once. g++ goes without, so that a source that
# forgets an include is found.
function(rapt_precompile target)
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    target_precompile_headers(${target} PRIVATE <algorithm> <array> <charconv> <chrono> <cmath> <cstring> <filesystem> <functional> <map>
                              <memory> <optional> <set> <span> <string> <string_view> <variant> <vector>)
  endif()
endfunction()

function(rapt_folder name)
  file(GLOB all CONFIGURE_DEPENDS rapt/${name}/*.cc)
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER all EXCLUDE REGEX "_(test|cpu)\\.cc$")
  set(RAPT_TEST_SOURCES ${RAPT_TEST_SOURCES} ${tests} PARENT_SCOPE)
  if(all)
    string(REPLACE / _ target rapt_${name})
    add_library(${target} OBJECT ${all})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
    if(NOT TARGET rapt_base OR target STREQUAL rapt_base)
      rapt_precompile(${target})
    elseif(CMAKE_CXX_COMPILER_ID MATCHES Clang)
      target_precompile_headers(${target} REUSE_FROM rapt_base)
    endif()
    set(RAPT_OBJECTS ${RAPT_OBJECTS} ${target} PARENT_SCOPE)
  endif()
endfunction()

# The kernels of every op for one instruction set, in its own namespace (RAPT_ISA).
function(rapt_kernels isa)
  file(GLOB kernels CONFIGURE_DEPENDS rapt/ops/*_cpu.cc)
  add_library(rapt_kernels_${isa} OBJECT ${kernels})
  target_include_directories(rapt_kernels_${isa} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(rapt_kernels_${isa} PRIVATE RAPT_ISA=${isa})
  # The dev preset builds without optimisation elsewhere; kernels always get some, or intrinsics and tiles take minutes to run.
  target_compile_options(rapt_kernels_${isa} PRIVATE ${ARGN} -Wno-unused-function -Wno-psabi)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(rapt_kernels_${isa} PRIVATE -Wno-maybe-uninitialized -Wno-uninitialized)  # its own intrinsics
  endif()
  if(CMAKE_BUILD_TYPE STREQUAL Release)
    target_compile_options(rapt_kernels_${isa} PRIVATE -O3)
  else()
    target_compile_options(rapt_kernels_${isa} PRIVATE -O2)
  endif()
  if(RAPT_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # Unrolled tiles with a check beside every load take four times as long to compile. Address checks are called instead of inlined,
    # and of undefined behaviour only what an address check would not stop anyway is left (90 s -> 22 s for attention's backward).
    target_compile_options(rapt_kernels_${isa} PRIVATE -fno-sanitize=null,alignment,pointer-overflow
                           "SHELL:-mllvm -asan-instrumentation-with-call-threshold=0")
  endif()
  if(RAPT_SANITIZE STREQUAL thread AND NOT isa STREQUAL scalar)
    target_compile_options(rapt_kernels_${isa} PRIVATE -fno-sanitize=thread)  # the tests run on the scalar ones (RAPT_ISA)
  endif()
  set(RAPT_OBJECTS ${RAPT_OBJECTS} rapt_kernels_${isa} PARENT_SCOPE)
endfunction()

macro(rapt_library)
  add_library(rapt STATIC)
  foreach(object ${RAPT_OBJECTS})
    target_sources(rapt PRIVATE $<TARGET_OBJECTS:${object}>)
  endforeach()
  target_include_directories(rapt PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  target_compile_features(rapt PUBLIC cxx_std_20)
  target_link_libraries(rapt PUBLIC Threads::Threads ZLIB::ZLIB)
  add_library(rapt::rapt ALIAS rapt)
endmacro()
