// SPDX-License-Identifier: Apache-2.0
// The longest end of the text that begins a stop string is held back.
#include "rapt/text/stop_text.h"

#include <algorithm>
#include <utility>

namespace rapt {

std::string StopText::push(std::string_view text) {
  if (found_) return {};
  held_ += text;
  std::size_t cut = std::string::npos;
  for (std::size_t i = 0; i < stops_.size(); ++i)
    if (const std::size_t at = held_.find(stops_[i]); !stops_[i].empty() && at < cut)
      cut = at, which_ = static_cast<int>(i);
  if (cut != std::string::npos) {
    found_ = true;
    held_.resize(cut);
    return std::exchange(held_, {});
  }
  std::size_t hold = 0;  // the longest end of the text that begins a stop string
  for (const std::string& s : stops_)
    for (std::size_t n = s.empty() ? 0 : std::min(s.size() - 1, held_.size()); n > hold; --n)
      if (held_.ends_with(std::string_view(s).substr(0, n))) hold = n;
  std::string out = held_.substr(0, held_.size() - hold);
  held_.erase(0, out.size());
  return out;
}

std::string StopText::finish() { return found_ ? std::string{} : std::exchange(held_, {}); }

}  // namespace rapt
