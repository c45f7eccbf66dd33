# SPDX-License-Identifier: Apache-2.0
# Every tests/fuzz/NAME_fuzz.cc is one libFuzzer program.
file(GLOB fuzzers CONFIGURE_DEPENDS tests/fuzz/*_fuzz.cc)
foreach(source ${fuzzers})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_link_libraries(${name} PRIVATE rapt)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
endforeach()
