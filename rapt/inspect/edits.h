// SPDX-License-Identifier: Apache-2.0
// Changes to a pass, written as text: ablate, scale, steer, patch. An edit that cannot work, or that touches
// nothing, is an error.
//
//   edit  = point ["@" head] ["@" pos] ["@" channel | "@" key] ":" op ["=" value]
//           z.5@3:zero   resid_post.8@-1:add=0.5   L5H3:mean   z.*@h0@p0..3:scale=0
//           resid_post.2@0@c182:zero   attn_weights.5@3@-1@k0:zero   attn_scores.5@h3@k0:mask
//   head  = ["h"] number | "all"
//           of points without heads the first "@" is a position
//   pos   = ["p"] number | number ".." number | "all"
//           both ends included; negative: from the end of the text
//   channel = "c" number
//           one of the vector's numbers; with zero, mean, scale, and add or replace of a number
//   key   = ["k"] as pos
//           of attn_weights and attn_scores: the keys of a row
//   op    = "zero" | "mean" | "scale" | "add" | "replace" | "project_out" | "swap" | "mask"
//   value = number | FILE.npy | FILE.safetensors ["#" tensor]
//   json  = {"point": …, "head": 3, "pos": "all", "channel": 7, "key": "0..2", "op": …,
//            "value": number | [numbers] | "FILE"}
//
// mean: over the tokens of the same pass, each head and channel for itself. add, replace: a number, a vector
// for every token, or a whole tensor of the point's shape (a capture of another text with as many tokens:
// activation patching). project_out: takes away what lies along a direction. swap: two directions [2,n]
// change places: what lay along one then lies along the other.
//
// attn_weights are changed behind the softmax, and nothing is divided again; attn_scores before it, so that
// what one key loses the others gain. Both take zero, scale, add and replace (a number, a vector of keys, or
// a tensor [H,T,keys], [T,keys] of one head); attn_scores take mask: the key is not seen. Keys that a row
// does not see stay unseen.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/inspect/sites.h"

namespace rapt {

struct Edit {
  enum class Op { zero, mean, scale, add, replace, project_out, swap, mask };
  std::string text;  // as written, for messages
  std::string point;
  std::vector<std::string> where;  // head, position, channel or key as written
  Op op = Op::zero;
  std::vector<float> values;
  std::vector<Dim> shape;  // of the values; empty: one number
};
Edit parse_edit(std::string_view text);  // reads the file a value names
// "resid_post.8@-1:add", and its value as numbers; an empty shape: one number.
Edit parse_edit(std::string_view text, std::vector<float> values, std::vector<Dim> shape);
std::vector<Edit> parse_edits(std::span<const std::string> texts);
// Edits that belong together. Equal keys: equal edits, values and all.
struct EditSet {
  explicit EditSet(std::vector<Edit> edits);
  std::vector<Edit> list;
  std::string key;
};
Edit read_edit(const Json& json);

// Puts edits on taps; they then change every pass that the taps serve. Rows of a pass count as the positions
// of one text from its first token on. Call what comes back after the pass: it fails where an edit touched
// nothing.
// Passes::many (generation): a text is read in pieces, each a share of its pass (run/taps.h) that says where
// its rows stand; positions then are those of the text. Edits that need it in one piece are refused.
enum class Passes { one, many };
std::function<void()> install_edits(Taps& taps, const Model& model, std::span<const Edit> edits,
                                    Passes passes = Passes::one);
// Whether one of them needs its text in one piece: positions from the end or of what the head gives, means,
// tensors of whole texts.
bool needs_whole(const Model& model, std::span<const Edit> edits);

}  // namespace rapt
