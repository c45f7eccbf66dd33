# SPDX-License-Identifier: Apache-2.0
# Every tests/fuzz/NAME_fuzz.cc is one libFuzzer program: it reads bytes from outside and must end in a value
# or in rapt::Error. `cmake --build --preset fuzz` builds the target fuzzers into build-dev/.
add_custom_target(fuzzers)
file(GLOB sources CONFIGURE_DEPENDS tests/fuzz/*_fuzz.cc)
foreach(source ${sources})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  if(name STREQUAL loader_fuzz)
    target_sources(${name} PRIVATE tests/hostile/made_model.cc)
  endif()
  target_link_libraries(${name} PRIVATE rapt)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers ${name})
endforeach()
