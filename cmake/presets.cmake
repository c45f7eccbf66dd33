# SPDX-License-Identifier: Apache-2.0
# The JSON files of a folder as one source file of a target (stem.cc, function stem()), so that the program
# needs no data files beside it. A changed, new or removed file configures again.
function(rapt_embed_json target folder stem)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.json)
  list(SORT files)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  string(CONCAT source "// Generated from ${folder}: edit the JSON files there.\n"
         "#include \"rapt/recipe/presets.h\"\n\n"
         "namespace rapt {\nnamespace {\nconstexpr PresetFile kFiles[] = {\n")
  foreach(path ${files})
    get_filename_component(name ${path} NAME)
    string(REGEX REPLACE "\\.json$" "" name "${name}")
    file(READ ${path} text)
    string(APPEND source "{\"${name}\", R\"json(${text})json\"},\n")
  endforeach()
  string(APPEND source "};\n}  // namespace\nstd::span<const PresetFile> ${stem}() { return kFiles; }\n"
         "}  // namespace rapt\n")
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/${stem}.cc CONTENT "${source}")
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated/${stem}.cc)
endfunction()
