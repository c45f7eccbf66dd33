# SPDX-License-Identifier: Apache-2.0
# Modules that connect ranks over MPI, one for each library that is here; both of Debian's may be. The program
# is linked to neither and opens the one whose launcher started it (rapt/comm/mpi.cc). AUTO: those that are
# found; ON: at least one must be; OFF: none.
set(RAPT_MPI AUTO CACHE STRING "Modules for several ranks over MPI: AUTO (of the libraries found), ON, OFF")
set(RAPT_MPI_MODULES "")
if(RAPT_MPI AND RAPT_PROGRAM AND NOT RAPT_PYTHON AND NOT RAPT_ONLY_COMPILES AND NOT RAPT_SANITIZE)
  find_package(PkgConfig QUIET)
  foreach(mpi "openmpi|ompi-c|Open MPI" "mpich|mpich|MPICH")
    string(REPLACE "|" ";" mpi "${mpi}")
    list(GET mpi 0 name)
    list(GET mpi 1 package)
    list(GET mpi 2 library)
    if(PKG_CONFIG_FOUND)
      pkg_check_modules(RAPT_${name} QUIET IMPORTED_TARGET ${package})
    endif()
    if(RAPT_${name}_FOUND)
      add_library(rapt_mpi_${name} MODULE rapt/comm/module/mpi_module.cc)
      set_target_properties(rapt_mpi_${name} PROPERTIES PREFIX "" SUFFIX .so
                            LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
      target_include_directories(rapt_mpi_${name} PRIVATE ${PROJECT_SOURCE_DIR})
      target_link_libraries(rapt_mpi_${name} PRIVATE PkgConfig::RAPT_${name})
      target_compile_definitions(rapt_mpi_${name} PRIVATE RAPT_MPI_LIBRARY="${library}")
      list(APPEND RAPT_MPI_MODULES rapt_mpi_${name})
    endif()
  endforeach()
  if(NOT RAPT_MPI_MODULES AND NOT RAPT_MPI STREQUAL AUTO)
    message(FATAL_ERROR "RAPT_MPI=${RAPT_MPI}: neither Open MPI nor MPICH is found by pkg-config (Debian: "
            "libopenmpi-dev, libmpich-dev)")
  endif()
endif()
