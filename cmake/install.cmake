# SPDX-License-Identifier: Apache-2.0
# cmake --install: the library with its public headers, the program with its man page and completions, the
# documents, and what find_package(rapt) and pkg-config read.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rapt)
install(TARGETS ${RAPT_INSTALLED} EXPORT rapt-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY
        DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(header ${RAPT_PUBLIC_HEADERS})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()
install(EXPORT rapt-targets NAMESPACE rapt:: DESTINATION ${package_dir})
if(RAPT_PROGRAM)
  install(TARGETS rapt_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  foreach(model ${RAPT_MODELS_INSIDE})
    install(FILES models/${model}/${model}.gguf DESTINATION ${CMAKE_INSTALL_DATADIR}/rapt)
  endforeach()
  if(RAPT_MPI_MODULES)
    install(TARGETS ${RAPT_MPI_MODULES} LIBRARY DESTINATION lib/rapt)
  endif()
  # Made by the whole build; without it, the program alone is installed.
  install(FILES ${manual}/rapt.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
  install(FILES ${manual}/rapt.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          RENAME rapt OPTIONAL)
  install(FILES ${manual}/_rapt DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions OPTIONAL)
  install(FILES ${manual}/rapt.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d OPTIONAL)
endif()
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
configure_package_config_file(cmake/rapt-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/rapt-config.cmake
    INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break callers.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/rapt-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/rapt-config.cmake
        ${CMAKE_CURRENT_BINARY_DIR}/rapt-config-version.cmake DESTINATION ${package_dir})

# An archive brings no list of what it needs, so its users link that too; of a shared library it is private.
set(RAPT_PC_LIBS "")
set(RAPT_PC_PRIVATE "-pthread -lz -ljpeg -lstdc++ -lm")
if(RAPT_TLS)
  string(PREPEND RAPT_PC_PRIVATE "-lssl -lcrypto ")
endif()
if(NOT RAPT_SHARED)
  set(RAPT_PC_LIBS " ${RAPT_PC_PRIVATE}")
  set(RAPT_PC_PRIVATE "")
endif()
# Found from where the file lies: an installed tree may be moved.
file(RELATIVE_PATH RAPT_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" RAPT_PC_UP ${RAPT_PC_UP})
configure_file(cmake/rapt.pc.in ${CMAKE_CURRENT_BINARY_DIR}/rapt.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/rapt.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
