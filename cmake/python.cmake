# SPDX-License-Identifier: Apache-2.0
# The Python module `rapt._rapt`: one file for every CPython from 3.10 on (nanobind's split mode: its run-time
# part is the package nanobind-backend). Driven by pyproject.toml, or by hand:
#   cmake -B build-python -DRAPT_PYTHON=ON [-DRAPT_BUILT=build] -DPython_EXECUTABLE=…
# RAPT_BUILT: a folder where the project is built already; its archives are linked, nothing is compiled twice.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_DIR
                OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE code ERROR_QUIET)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "nanobind 3 is missing for ${Python_EXECUTABLE}: pip install 'nanobind>=3.0', or build "
          "with `pip install .`, which brings it")
endif()
find_package(nanobind 3.0 CONFIG REQUIRED)

file(GLOB RAPT_BINDING CONFIGURE_DEPENDS rapt/apps/python/*.cc)
# The older versions of two functions (older_linux.cc); sanitizers have versions of their own.
set(older OFF)
if(CMAKE_SYSTEM_NAME STREQUAL Linux AND CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64 AND NOT RAPT_SANITIZE)
  set(older ON)
else()
  list(FILTER RAPT_BINDING EXCLUDE REGEX "/older_linux\\.cc$")
endif()
nanobind_add_module(_rapt BACKEND_MODULE nanobind_backend NB_SUPPRESS_WARNINGS ${RAPT_BINDING})
target_include_directories(_rapt PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(_rapt PRIVATE RAPT_VERSION="${PROJECT_VERSION}")
set_target_properties(_rapt PROPERTIES CXX_STANDARD 20)
if(RAPT_BUILT)
  get_filename_component(built ${RAPT_BUILT} ABSOLUTE)
  target_link_libraries(_rapt PRIVATE ${built}/librapt_program.a ${built}/librapt.a Threads::Threads
                        ZLIB::ZLIB JPEG::JPEG ${RAPT_TLS_LIBRARIES})
else()
  target_link_libraries(_rapt PRIVATE rapt_program_archive rapt)
endif()
if(older)
  target_link_options(_rapt PRIVATE -Wl,--wrap=hypot
                      -Wl,--wrap=_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang AND RAPT_LLD)
  # Equal functions once (templates have many), and texts that others end in.
  target_link_options(_rapt PRIVATE -Wl,--icf=safe -Wl,-O2)
endif()
# Names of our own alone: another module's copy of the library must not be taken for ours.
target_link_options(_rapt PRIVATE -Wl,--exclude-libs,ALL)

install(TARGETS _rapt LIBRARY DESTINATION rapt COMPONENT python)
# What others wrote and the wheel brings along: nanobind's front, and libjpeg, which auditwheel puts in.
if(SKBUILD)
  file(GLOB notice ${nanobind_DIR}/../../nanobind-*.dist-info/licenses/LICENSE)
  foreach(place /usr/share/doc/libjpeg62-turbo /usr/share/doc/libjpeg-turbo)
    if(EXISTS ${place}/copyright)
      list(APPEND notice ${place}/copyright)
    endif()
  endforeach()
  foreach(file ${notice})
    string(REGEX MATCH "nanobind|libjpeg" name ${file})
    install(FILES ${file} DESTINATION ${SKBUILD_METADATA_DIR}/licenses RENAME ${name}.txt COMPONENT python)
  endforeach()
endif()
foreach(model ${RAPT_MODELS_INSIDE})
  install(FILES models/${model}/${model}.gguf DESTINATION rapt/models COMPONENT python)
endforeach()
