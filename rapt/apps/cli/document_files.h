// SPDX-License-Identifier: Apache-2.0
// A document as files: its pictures (--out) and its page (--html), the same for every verb that has them.
#pragma once
#include <optional>
#include <string>

#include "rapt/report/document.h"

namespace rapt::cli {

// Fails where the files could not be written. `maps`: there are heat maps, which may become PNG.
void check_document_files(const std::optional<std::string>& out, const std::optional<std::string>& html,
                          bool force, bool maps = true);
// A file: the first map or chart; a folder (or a name that ends in /): all of them, NAME-1.svg and so on.
void write_pictures(const Document& document, const std::string& out, bool force, bool quiet);
void write_page(const Document& document, const std::string& path, bool force, bool quiet);

}  // namespace rapt::cli
