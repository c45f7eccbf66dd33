# SPDX-License-Identifier: Apache-2.0
# The text files of a folder as one source file of a target (stem.cc, function stem(), declared in `header`
# with the struct `type` {name, text}), so that the program needs no files beside it. A changed, new or
# removed file configures again. RECURSE: those of its folders too, named folder/name.
function(rapt_embed_text target folder stem type header)
  set(glob GLOB)
  if("RECURSE" IN_LIST ARGN)
    set(glob GLOB_RECURSE)
  endif()
  file(${glob} files LIST_DIRECTORIES false CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*)
  list(SORT files)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  string(CONCAT source "// Generated from ${folder}: edit the files there.\n#include \"${header}\"\n\n"
         "namespace rapt {\nnamespace {\nusing namespace std::string_view_literals;\n"
         "constexpr ${type} ${stem}_list[] = {\n")
  foreach(path ${files})
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR}/${folder} ${path})
    file(READ ${path} text)
    string(APPEND source "{\"${name}\",\n")
    # Compilers promise little for long literals: pieces of at most 8,000 bytes that end with a line (never
    # inside a character).
    string(LENGTH "${text}" left)
    while(left GREATER 0)
      string(SUBSTRING "${text}" 0 8000 piece)
      string(FIND "${piece}" "\n" end REVERSE)
      if(end EQUAL -1)
        message(FATAL_ERROR "${path}: a line is longer than 8,000 bytes, or the last one is not ended")
      endif()
      math(EXPR end "${end} + 1")
      string(SUBSTRING "${text}" 0 ${end} piece)
      string(SUBSTRING "${text}" ${end} -1 text)
      string(APPEND source "R\"rapt(${piece})rapt\"\n")
      string(LENGTH "${text}" left)
    endwhile()
    # With its length: counting a few hundred kilobytes is more than a compiler does for a constant.
    string(APPEND source "\"\"sv},\n")
  endforeach()
  string(APPEND source "};\n}  // namespace\nstd::span<const ${type}> ${stem}() { return ${stem}_list; }\n"
         "}  // namespace rapt\n")
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/${stem}.cc CONTENT "${source}")
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated/${stem}.cc)
endfunction()
