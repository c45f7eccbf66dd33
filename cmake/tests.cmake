# SPDX-License-Identifier: Apache-2.0
find_package(GTest REQUIRED)
include(GoogleTest)
file(GLOB end_to_end CONFIGURE_DEPENDS tests/*.cc rapt/apps/cli/*_test.cc)
list(FILTER end_to_end EXCLUDE REGEX "/build_kind\\.cc$")
# The second compiler and the thread sanitizer run what could come out differently there.
if(RAPT_TEST_SET STREQUAL core)
  list(FILTER RAPT_TEST_SOURCES INCLUDE REGEX "rapt/(base|tensor|comm|run|ops)/")
  list(FILTER end_to_end INCLUDE REGEX
       "/((bits|bits_quant|golden|gradients)_test|model_tools|naive_model)\\.cc$")
elseif(RAPT_TEST_SET STREQUAL threads)
  list(FILTER RAPT_TEST_SOURCES INCLUDE REGEX "rapt/(base/base_test|comm/comm_test|http/server_test)")
  list(FILTER end_to_end INCLUDE REGEX
       "/((threads|schedules|engine[a-z_]*)_test|schedules|model_tools|toy_checkpoint)\\.cc$")
elseif(RAPT_TEST_SET STREQUAL load)
  list(FILTER RAPT_TEST_SOURCES INCLUDE REGEX "rapt/(tensor|ops|recipe|nn|io|image|load)/")
  list(FILTER end_to_end INCLUDE REGEX "/((family|hostile_config|hostile_model|checkpoint|block_files|\
model_folder|golden|bits|bits_quant|gradients|grid|kv_pool|model|schedules)[a-z_]*_test|\
model_tools|naive_model|toy_checkpoint|schedules|grid|memory_checkpoint)\\.cc$")
endif()
# While one works on something: -DRAPT_TEST_FILTER='family|norm' compiles these tests only.
set(RAPT_TEST_FILTER "" CACHE STRING "Tests to build, a pattern for the names of their sources; empty: all")
set(together ${RAPT_UNITY})
if(RAPT_TEST_FILTER)
  set(together OFF)  # other neighbours than those whose names were made to differ
  foreach(source ${RAPT_TEST_SOURCES} ${end_to_end})
    get_filename_component(name ${source} NAME_WE)
    if(name MATCHES "_test$" AND NOT name MATCHES "^op_test$|${RAPT_TEST_FILTER}")
      list(REMOVE_ITEM RAPT_TEST_SOURCES ${source})
      list(REMOVE_ITEM end_to_end ${source})
    endif()
  endforeach()
endif()
# Compiling the tests takes longer than running them, so
# - their own code (not what they test) stays as it is written, but for the references that a test would
#   wait for;
# - eight sources are compiled as one (RAPT_UNITY; scripts/test --long gcc compiles each alone, without
#   precompiled headers);
# - the address sanitizer looks at the library and the program, not at the tests: ccache then has their
#   objects from the release, and the references are not slowed down. tests/build_kind.cc tells them where
#   they run.
# Those of the program are a library of their own, so that a build without it has the others' objects.
set(test_objects rapt_test_objects)
set(of_library ${RAPT_TEST_SOURCES} ${end_to_end})
set(of_program ${of_library})
set(program_tests
    "/(apps/cli/[a-z_]+|cli_[a-z_]+|(inspect_picture|twin_parts|weight_sizes)_test)\\.cc$")
list(FILTER of_library EXCLUDE REGEX ${program_tests})
list(FILTER of_program INCLUDE REGEX ${program_tests})
add_library(rapt_test_objects STATIC ${of_library})
if(RAPT_PROGRAM AND of_program)
  add_library(rapt_program_test_objects STATIC ${of_program})
  list(APPEND test_objects rapt_program_test_objects)
endif()
foreach(target ${test_objects})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${together} UNITY_BUILD_BATCH_SIZE 8)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE RAPT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE GTest::gmock GTest::gtest)
  if(RAPT_SANITIZE MATCHES address)
    set_property(TARGET ${target} PROPERTY COMPILE_OPTIONS ${RAPT_PLAIN_OPTIONS})
  endif()
  # A name of another file.
  target_compile_options(${target} PRIVATE -O0 $<$<CXX_COMPILER_ID:Clang>:-Werror> -Wno-shadow)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # if (…) EXPECT_…: the macro takes care of it
    target_compile_options(${target} PRIVATE -Wno-dangling-else)
  endif()
endforeach()
set_source_files_properties(
    tests/grid.cc tests/naive_model.cc tests/bits_test.cc tests/schedules.cc PROPERTIES
    COMPILE_OPTIONS -O1 SKIP_UNITY_BUILD_INCLUSION ON)
# Alone, so that the others keep their neighbours (threads_test.cc and views_test.cc do not go together).
set_source_files_properties(rapt/apps/server/protocol_continue_test.cc PROPERTIES
                            SKIP_UNITY_BUILD_INCLUSION ON)

add_executable(rapt_tests tests/build_kind.cc)
target_include_directories(rapt_tests PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(rapt_tests PRIVATE RAPT_BINARY_DIR="${CMAKE_BINARY_DIR}")
add_dependencies(rapt_tests rapt ${test_objects})
if(RAPT_SANITIZE MATCHES address)
  # The library before the tests: of an inline function that both have, the linker takes the first, which is
  # the one with the checks.
  target_link_libraries(rapt_tests PRIVATE -Wl,--whole-archive $<TARGET_FILE:rapt> -Wl,--no-whole-archive)
endif()
foreach(target ${test_objects})
  target_link_libraries(rapt_tests PRIVATE -Wl,--whole-archive $<TARGET_FILE:${target}>
                        -Wl,--no-whole-archive)
endforeach()
target_link_libraries(rapt_tests PRIVATE rapt GTest::gmock GTest::gtest_main)
if(RAPT_PROGRAM)
  target_link_libraries(rapt_tests PRIVATE rapt_program)
endif()
# scripts/test runs these by itself, many in a process: label "unit".
gtest_discover_tests(rapt_tests DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600 LABELS unit)

# One allocation fails, everywhere in turn: a program of its own, whose malloc can. The sanitizers have a
# malloc of theirs.
if(RAPT_PROGRAM AND NOT RAPT_SANITIZE)
  file(GLOB allocation CONFIGURE_DEPENDS tests/allocation/*.cc)
  add_executable(rapt_allocation_tests ${allocation})
  target_link_libraries(rapt_allocation_tests PRIVATE rapt_program GTest::gtest_main)
  target_include_directories(rapt_allocation_tests PRIVATE ${PROJECT_SOURCE_DIR})
  gtest_discover_tests(rapt_allocation_tests PROPERTIES TIMEOUT 600)
endif()

# A rank of several, which a launcher starts (tests/ranks/ranks_test.py).
if(RAPT_PROGRAM AND NOT RAPT_SANITIZE)
  add_executable(rapt_ranks_tool tests/ranks/ranks_tool.cc)
  target_link_libraries(rapt_ranks_tool PRIVATE rapt_program)
  set_target_properties(rapt_ranks_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  if(RAPT_MPI_MODULES)
    add_dependencies(rapt_ranks_tool ${RAPT_MPI_MODULES})
  endif()
endif()

# Mutated files of every kind, opened as a user would (tests/attack/attack.cc): a few here, many in
# scripts/test --long.
if(RAPT_TEST_SET STREQUAL all)
  file(GLOB attack CONFIGURE_DEPENDS tests/attack/*.cc)
  add_executable(rapt_attack ${attack} tests/hostile/made_model.cc tests/toy_checkpoint.cc
                 tests/model_tools.cc)
  target_link_libraries(rapt_attack PRIVATE rapt ZLIB::ZLIB)
  target_include_directories(rapt_attack PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(rapt_attack PRIVATE RAPT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_compile_options(rapt_attack PRIVATE -O0)
  add_test(NAME attack COMMAND rapt_attack --count 300)
endif()

# The examples of README and docs: they compile and run.
file(GLOB examples CONFIGURE_DEPENDS examples/*.cc)
if(NOT RAPT_TEST_SET STREQUAL all)
  set(examples "")
endif()
foreach(source ${examples})
  get_filename_component(name ${source} NAME_WE)
  add_executable(example_${name} ${source})
  target_link_libraries(example_${name} PRIVATE rapt::rapt)
  add_test(NAME example_${name} COMMAND example_${name})
endforeach()

# Unoptimised or instrumented kernels call what is otherwise inlined away.
if(CMAKE_BUILD_TYPE STREQUAL Release AND RAPT_TEST_SET STREQUAL all AND NOT RAPT_SANITIZE)
  foreach(isa avx2 avx512 neon)
    if(TARGET rapt_kernels_${isa})
      add_test(NAME isa_symbols_${isa} COMMAND ${PROJECT_SOURCE_DIR}/scripts/check-symbols ${isa}
               $<TARGET_OBJECTS:rapt_kernels_${isa}>
               COMMAND_EXPAND_LISTS)
    endif()
  endforeach()
endif()

if(NOT RAPT_UNITY)
  # Every header compiles alone: one generated source per header, but for those that a source of the same name
  # includes first. Compiling is the test.
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} rapt/*.h tests/*.h)
  set(alone "")
  foreach(header ${headers})
    string(REGEX REPLACE "\\.h$" ".cc" own ${header})
    if(EXISTS ${PROJECT_SOURCE_DIR}/${own})
      file(STRINGS ${own} first REGEX "^#include" LIMIT_COUNT 1)
      if(first STREQUAL "#include \"${header}\"")
        continue()
      endif()
    endif()
    string(REGEX REPLACE "[/.]" "_" name ${header})
    set(source ${CMAKE_BINARY_DIR}/headers_alone/${name}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\n" @ONLY)
    list(APPEND alone ${source})
  endforeach()
  add_library(rapt_headers_alone OBJECT ${alone})
  target_include_directories(rapt_headers_alone PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(rapt_headers_alone PRIVATE RAPT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_compile_options(rapt_headers_alone PRIVATE -O0 -Wno-unused)
  add_dependencies(rapt_tests rapt_headers_alone)
endif()

# What is the same in every build is checked in one of them.
if(RAPT_PROGRAM AND CMAKE_CXX_COMPILER_ID MATCHES Clang AND NOT RAPT_SANITIZE)
  # The page of `rapt inspect report` in a real browser, where there is one.
  add_executable(make_page tests/browser/make_page.cc)
  target_link_libraries(make_page PRIVATE rapt)
  add_test(NAME browser_page COMMAND python3 -B ${PROJECT_SOURCE_DIR}/tests/browser/page_test.py
           $<TARGET_FILE:make_page>)
  # The page of `rapt serve`, against the program itself; it shares the toys of the tests of `rapt serve`.
  set_tests_properties(browser_page PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 400)
  file(GLOB browser_tests CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/tests/browser
       tests/browser/*_test.py)
  list(REMOVE_ITEM browser_tests page_test.py)
  foreach(file ${browser_tests})
    string(REPLACE "_test.py" "" name ${file})
    add_test(NAME browser_${name} COMMAND python3 -B ${PROJECT_SOURCE_DIR}/tests/browser/${file} --rapt
             $<TARGET_FILE:rapt_cli> --models ${CMAKE_BINARY_DIR}/serve-models)
    set_tests_properties(browser_${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 400
                         RESOURCE_LOCK browser)
  endforeach()

  add_test(NAME one_definition COMMAND python3 -B ${PROJECT_SOURCE_DIR}/scripts/check-doubles)
  # Every command of README and docs: it exists, and it runs (on toys; with real models: scripts/test
  # --long docs).
  add_test(NAME documented_commands COMMAND python3 -B ${PROJECT_SOURCE_DIR}/tests/docs_test.py --build
           ${CMAKE_BINARY_DIR})
  set_tests_properties(documented_commands PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)

  # Files for clusters, as far as they can be checked without one.
  add_test(NAME cluster_files COMMAND python3 -B ${PROJECT_SOURCE_DIR}/tests/cluster_test.py --rapt
           $<TARGET_FILE:rapt_cli>)

  # `rapt serve`, from outside: every route by value, what must not work, equal bits under load, mutated
  # requests, a storm of connections, clients from PyPI where that can be reached. They share toy models; the
  # first one that runs makes them.
  set(flags_of_mutate --count 4000)  # --long mutate: 100,000
  foreach(name api tools vendors look lab train recipe security bits replay continue
               replicas mutate load clients)
    add_test(NAME serve_${name} COMMAND python3 -B ${PROJECT_SOURCE_DIR}/tests/serve/${name}_test.py --rapt
             $<TARGET_FILE:rapt_cli> ${flags_of_${name}})
    set_tests_properties(serve_${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
  endforeach()
  # A minute of which it mostly waits: begun first, beside the others.
  set_tests_properties(serve_load PROPERTIES COST 1000)

  # Ranks as processes, under the launchers that are here; they mostly wait.
  foreach(launchers mpi sockets)
    add_test(NAME ranks_${launchers} COMMAND python3 -B ${PROJECT_SOURCE_DIR}/tests/ranks/ranks_test.py
             ${launchers} --rapt $<TARGET_FILE:rapt_cli> --tool $<TARGET_FILE:rapt_ranks_tool>)
    set_tests_properties(ranks_${launchers} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 400 COST 900)
  endforeach()

  # Schemas by the JSON Schema test suite, by pydantic and by jsonschema, and what models answer that are held
  # to them, where PyPI can be reached.
  foreach(name suite answers)
    add_test(NAME schema_${name} COMMAND python3 -B ${PROJECT_SOURCE_DIR}/tests/schema/${name}_test.py
             --rapt $<TARGET_FILE:rapt_cli>)
    set_tests_properties(schema_${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
  endforeach()

  add_test(NAME neon_compiles COMMAND ${PROJECT_SOURCE_DIR}/scripts/check-neon)
  set_tests_properties(neon_compiles PROPERTIES SKIP_RETURN_CODE 77)
endif()
