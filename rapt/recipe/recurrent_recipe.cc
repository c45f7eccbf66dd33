// SPDX-License-Identifier: Apache-2.0
// Rules fail with the field's path and what to do instead.
#include "rapt/recipe/recurrent_recipe.h"

#include "rapt/base/checked.h"
#include "rapt/recipe/recipe_fields.h"

namespace rapt {
namespace {

using Cell = RecurrentRecipe::Cell;
using Start = RecurrentRecipe::Start;
using AlignScore = AlignRecipe::Score;
using Window = AlignRecipe::Window;

void resolve_decoder(const Recipe& recipe, RecurrentRecipe& r, const std::string& path) {
  const StackRecipe* encoder = recipe.encoder ? &*recipe.encoder : nullptr;
  const RecurrentRecipe* from = encoder && encoder->recurrent ? &*encoder->recurrent : nullptr;
  if (r.both_ways)
    fail(path,
         ".both_ways: a decoder writes word by word, so nothing can be read from the end; "
         "it belongs to an encoder");
  if (r.start == Start::projected && !encoder)
    fail(path, ".start: there is no encoder whose state could be projected; use zero");
  if (encoder && !from && r.start != Start::zero)
    fail(path, ".start: the encoder is no recurrent one and leaves no last state; use \"start\": \"zero\"");
  if (from && r.start == Start::last) {
    if (from->cell != r.cell)
      fail(path, ".start: the encoder's last states are those of ", name_text(from->cell),
           " cells, these are ", name_text(r.cell), "; use the same cell, or start projected or zero");
    if (from->layers != r.layers)
      fail(path,
           ".start: each layer starts from the encoder's last state of the same layer, but the encoder has ",
           from->layers, " layers and the decoder ", r.layers,
           "; make them equal, or start projected or zero");
    if (from->out_width() != r.width)
      fail(path, ".start: the encoder's last states have ", from->out_width(), " channels",
           from->both_ways ? " (both ways together)" : "", ", the decoder's ", r.width,
           "; make them equal, or start projected or zero");
  }
  if (!r.attention) {
    if (encoder && r.start == Start::zero)
      fail(path,
           ": without attention and with start zero nothing would read the encoder; add attention, or start "
           "last or projected");
    if (r.width != recipe.width)
      fail(path,
           ".width: without attention there is no readout, so states go to the head and must "
           "be as wide as the model, ",
           recipe.width, ", not ", r.width);
    return;
  }
  AlignRecipe& a = *r.attention;
  const std::string at = path + ".attention";
  if (!encoder)
    fail(at, ": there is no encoder whose result could be looked at; add one or remove attention");
  const bool hidden = is_additive(a) || a.window == Window::predictive;
  if (!hidden && a.width != 0)
    fail(at,
         ".width: only additive and concat scores and a predictive window have a hidden layer, the score is ",
         name_text(a.score), "; remove it");
  if (hidden && a.width == 0) a.width = r.width;
  if (a.score == AlignScore::dot && memory_width(recipe) != r.width)
    fail(at, ".score: dot multiplies the decoder's ", r.width, " channels with the encoder's ",
         memory_width(recipe), "; make them equal, or use general, additive or concat");
  if (a.feed && a.at == AlignRecipe::At::previous)
    fail(at,
         ".feed: with at previous the context already enters the cell; input feeding belongs to at current");
}

}  // namespace

Dim gates_of(const RecurrentRecipe& r) { return r.cell == Cell::gru ? 3 : r.cell == Cell::lstm ? 4 : 1; }
bool is_additive(const AlignRecipe& a) {
  return a.score == AlignScore::additive || a.score == AlignScore::concat;
}
Dim memory_width(const Recipe& recipe) {
  return recipe.encoder && recipe.encoder->recurrent ? recipe.encoder->recurrent->out_width() : recipe.width;
}
Dim readout_width(const Recipe& recipe, const AlignRecipe& a) {
  return a.readout == AlignRecipe::Readout::maxout ? 2 * recipe.width : recipe.width;
}

void resolve_recurrent(Recipe& recipe, StackRecipe& stack, const std::string& path, bool decoder) {
  RecurrentRecipe& r = *stack.recurrent;
  const std::string at = path + ".recurrent";
  const StackRecipe plain;
  if (!stack.kinds.empty())
    fail(path,
         ".kinds: a recurrent stack has cells in the place of layers; remove the kinds (null on top of a "
         "preset) or `recurrent`");
  if (stack.layers != plain.layers || stack.pattern != plain.pattern)
    fail(path, ".", stack.layers != plain.layers ? "layers" : "pattern",
         ": belongs to layers of attention; cells are counted by recurrent.layers");
  if (stack.final_norm) fail(path, ".final_norm: a recurrent stack has no norms; remove it");
  if (recipe.embed.sink_tokens > 0)
    fail("embed.sink_tokens: learned first tokens are for attention among tokens, and ", path,
         " is recurrent; set 0");
  if (r.width == 0) r.width = recipe.width;
  if (checked_mul(8, r.width, at) > static_cast<Dim>(kMostSize))
    fail(at, ".width: ", r.width, " is too wide");
  if (decoder) return resolve_decoder(recipe, r, at);
  if (r.attention) fail(at, ".attention: an encoder has nothing to look at; it belongs to a decoder");
  if (r.start != Start::last)
    fail(at, ".start: an encoder starts from zeros; the field belongs to a decoder");
  if (r.out_width() != recipe.width && !(recipe.decoder && recipe.decoder->recurrent))
    fail(at, ".width: ", recipe.decoder ? "the decoder's cross-attention reads" : "the head reads",
         " rows of the model's width, ", recipe.width, ", and the states have ", r.out_width(),
         r.both_ways ? concat(" (both ways together); set width ", recipe.width / 2) : "");
}

}  // namespace rapt
