// SPDX-License-Identifier: Apache-2.0
// Named tensors of one pass over one text, as f32, and files of them: .safetensors, one .npy, or a folder of
// .npy. What is asked for is counted before the pass: more than the limit is refused with the number, so a
// [H,T,T] of a long text ends in words and not in memory. And functions of somebody's own at named points.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/inspect/look.h"
#include "rapt/inspect/sites.h"

namespace rapt {

struct Asked {
  std::string name;  // as it was written, a * replaced by the layer
  Point point;
};
std::vector<Asked> ask_points(const Model& model, std::span<const std::string> names);

struct Captured {
  std::string name;
  std::vector<Dim> shape;
  std::vector<float> values;  // attn_scores: -infinity where a row does not see a key
};
struct Capture {
  std::string model;
  std::vector<std::int32_t> ids, source;
  std::vector<Captured> tensors;  // in the order asked
  Captured result;  // what forward() gives for the whole text, where CaptureOptions::result asks for it
  const Captured& of(std::string_view name) const;  // fails where there is none
};

struct CaptureOptions {
  double most_bytes = 1024.0 * 1024 * 1024;
  const Taps* taps = nullptr;  // edits of the same pass (edits.h)
  std::span<const AdapterUse> adapters = {};  // of all rows
  bool result = false;
};
// An encoder-decoder needs `source`, the encoder's tokens. Learned sink tokens of a model are rows before
// those of the text.
Capture capture(Device& device, const Model& model, std::span<const Asked> asked, Ids ids, Ids source = {},
                const CaptureOptions& options = {});

// Every point's value as soon as it is whole: see(i, value of asked[i]), in the order of the pass. The taps
// must serve one pass that reads a text of `rows` tokens (`source`: of the encoder's text, in an
// encoder-decoder) in one piece; nobody else may want weights of them.
using SeeCaptured = std::function<void(std::size_t i, Captured&& value)>;
void watch_points(Taps& taps, const Model& model, std::span<const Asked> asked, Dim rows, Dim source,
                  SeeCaptured see);

// A function that changes the values of points in place: edit(i, value of asked[i]) as it comes by. Fails
// where a point cannot be changed. Call what comes back after the pass: it fails where a point did not come
// by.
std::function<void()> edit_points(Taps& taps, std::span<const Asked> asked,
                                  std::function<void(std::size_t i, const Tapped& value)> edit);

// NAME.safetensors (metadata: model, tokens, source), NAME.npy (one tensor) or a folder: NAME/point.npy and
// NAME/index.json.
void write_capture(const Capture& capture, const std::string& path, bool force);
// Fails where `path` cannot hold so many tensors: ask before they are computed.
void check_capture_name(std::string_view path, std::size_t tensors);

}  // namespace rapt
