// SPDX-License-Identifier: Apache-2.0
// Files of pictures for a model: prepared as its folder says (rapt/image), some at a time.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rapt/image/preprocess.h"
#include "rapt/load/checkpoint.h"
#include "rapt/run/batch.h"

namespace rapt {

// What the model's folder says about pictures, or what is usual for its family. Fails where the model reads
// none; `verb` begins messages.
ImageProcess image_process_of(const Checkpoint& checkpoint, const char* verb);

// Files as they are named; a folder stands for the PNG and JPEG files in it (by the ends of their names, in
// the order of their names). Fails where there is none.
std::vector<std::string> picture_paths(std::span<const std::string> names);

// Reads and prepares all of them, a few in memory at a time: `take` gets those from `first` on.
using TakePictures = std::function<void(std::size_t first, std::span<const Picture> pictures)>;
void read_picture_files(const ImageProcess& process, std::span<const std::string> paths,
                        const TakePictures& take);

}  // namespace rapt
