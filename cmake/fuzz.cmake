# SPDX-License-Identifier: Apache-2.0
# Every tests/fuzz/NAME_fuzz.cc is one libFuzzer program: it reads bytes from outside and must end in a value or in rapt::Error. They need
# the readers and the loader only, so they link those (a linker takes from an archive what is asked for) and neither ops nor kernels are
# compiled under the fuzzer: what a loaded model would compute with is left unresolved, since nobody computes.
# `cmake --build --preset fuzz` builds the target fuzzers.
file(GLOB recipes CONFIGURE_DEPENDS rapt/nn/recipe*.cc rapt/nn/recurrent_recipe.cc rapt/nn/show.cc)
file(GLOB templates CONFIGURE_DEPENDS rapt/use/chat_template*.cc)
file(GLOB loader CONFIGURE_DEPENDS rapt/nn/checkpoint*.cc rapt/nn/family*.cc rapt/nn/layers.cc rapt/nn/model.cc rapt/nn/recurrent_layers.cc)
list(FILTER recipes EXCLUDE REGEX "_test\\.cc$")
list(FILTER templates EXCLUDE REGEX "_test\\.cc$")
add_library(rapt_readers STATIC EXCLUDE_FROM_ALL ${recipes} ${templates} ${loader})
foreach(part base tensor io io_tokenizer)
  if(TARGET rapt_${part})
    target_sources(rapt_readers PRIVATE $<TARGET_OBJECTS:rapt_${part}>)
  endif()
endforeach()
target_include_directories(rapt_readers PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(rapt_readers PUBLIC Threads::Threads ZLIB::ZLIB)
target_sources(rapt_readers PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated/preset_files.cc)  # made for rapt_nn

add_custom_target(fuzzers)
file(GLOB sources CONFIGURE_DEPENDS tests/fuzz/*_fuzz.cc)
foreach(source ${sources})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_link_libraries(${name} PRIVATE rapt_readers)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  if(name STREQUAL loader_fuzz)
    target_link_options(${name} PRIVATE -Wl,--unresolved-symbols=ignore-all)
  endif()
  add_dependencies(fuzzers ${name})
endforeach()
