# SPDX-License-Identifier: Apache-2.0
# cmake -DSOURCE=… -DOUT=… -P version.cmake: writes the commit into a source of its own, and only where it
# changed, so that a build after a commit compiles one line. Without git, or outside a checkout of this
# project, it is empty and the program says so.
set(commit "")
find_program(git git)
if(git AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${git} -C ${SOURCE} describe --always --dirty --abbrev=10 OUTPUT_VARIABLE commit
                  OUTPUT_STRIP_TRAILING_WHITESPACE
                  ERROR_QUIET)
endif()
string(CONCAT text "namespace rapt::cli {\nextern const char* const kCommit;\n"
       "const char* const kCommit = \"${commit}\";\n}  // namespace rapt::cli\n")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT text STREQUAL "${before}")
  file(WRITE ${OUT} "${text}")
endif()
