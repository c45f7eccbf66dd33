// SPDX-License-Identifier: Apache-2.0
// The fields of the recipe (fields.h says how they are listed), without those of parts, which stand beside
// their structs (parts/).
#pragma once
#include "rapt/recipe/fields.h"
#include "rapt/recipe/recipe.h"

namespace rapt {

RAPT_NAMES(AlignRecipe::At, "previous", "current")
RAPT_NAMES(AlignRecipe::Score, "dot", "general", "additive", "concat")
RAPT_NAMES(AlignRecipe::Readout, "tanh", "maxout")
RAPT_NAMES(RecurrentRecipe::Cell, "gru", "lstm", "rnn")
RAPT_NAMES(RecurrentRecipe::Start, "last", "projected", "zero")
RAPT_NAMES(HeadRecipe::Kind, "vocab", "none", "classes", "vector")
RAPT_NAMES(HeadRecipe::Pool, "first", "mean", "last", "both", "token", "attention")
RAPT_NAMES(PatchRecipe::Resample, "bicubic", "antialias")
RAPT_NAMES(InitRecipe::Scheme, "normal", "xavier", "t5")
RAPT_NAMES(EmbedRecipe::Project, "tokens", "sum")
RAPT_NAMES(SinusoidLayout, "pairs", "halves")
RAPT_NAMES(SinusoidTable, "paper", "marian")

// What every part has; the rest are the fields of its AttnRecipe, FfnRecipe, ….
template <class V>
void fields(Of<PartRecipe>, V& v) {
  using T = PartRecipe;
  v.about("Part",
          "One step of a layer: x + residual_scale * dropout(norm_out(f(norm_in(x)))), "
          "then norm_sum. Written `{\"self\": {...}}`, "
          "`{\"cross\": {...}}`, `{\"ffn\": {...}}`, `{\"moe\": {...}}`, `{\"delta\": {...}}` or "
          "`{\"conv\": {...}}`, "
          "with these fields and those of Attention, Ffn, Moe, Delta or Conv inside.");
  v.field("norm_in", &T::norm_in, "before f: pre-norm");
  v.field("norm_out", &T::norm_out, "after f: alone as in OLMo 2, with norm_in as in Gemma 2");
  v.field("norm_sum", &T::norm_sum, "after the sum: post-norm, the order of 2017");
  v.field("residual_scale", &T::residual_scale, "factor on the branch", kNonzero);
  v.field("layer_scale", &T::layer_scale,
          "not 0: a learned factor per channel on the branch, which starts from this (DINOv2); 0: none",
          kAnyNumber);
  v.field("dropout", &T::dropout, "on the branch, before it is added", kShare);
}

template <class V>
void fields(Of<LayerRecipe>, V& v) {
  using T = LayerRecipe;
  v.about("Layer", "What one layer does, part after part.");
  v.field("parallel", &T::parallel,
          "all parts read the same input and their results are added together (PaLM, ViT-22B)");
  v.field("norm_in", &T::norm_in,
          "parallel with one norm for all parts; with a norm each, they stand on the parts");
  v.field(
      "parts", &T::parts,
      "a list of parts. On top of a preset an object `{\"self\": {...}}` changes the parts of that name that "
      "are there, and leaves the "
      "others");
}

template <class V>
void fields(Of<AlignRecipe>, V& v) {
  using T = AlignRecipe;
  v.about("Align",
          "How a recurrent decoder looks at the encoder's result: one head, once per step, seen as "
          "cross-attention of its last layer.");
  v.field(
      "at", &T::at,
      "which state of the last layer asks: the one before the step, whose answer enters the first layer's "
      "cell (Bahdanau), or the one "
      "after it (Luong)");
  v.field("score", &T::score,
          "h.s; h.Ws; v.tanh(Wh + Us) (Bahdanau); concat: the same sum, as Luong writes it: v.tanh(W[h; s])");
  v.field("width", &T::width,
          "hidden units of additive and concat scores and of the predicted place; 0: the cells' width",
          kSize);
  v.field("feed", &T::feed,
          "the readout of a step enters the next one's first cell (input feeding); needs at current");
  v.choice("window", &T::window, "which words a step sees", word("none", "all of the source"),
           group("monotonic", "those around its own position (Luong's local-m)",
                 [](auto& g) { g.field("reach", &T::reach, "words to each side", Range{1, kMostSize}); }),
           group("predictive",
                 "those around a place it predicts, p = S sigmoid(v.tanh(W h)), weights times a Gaussian of "
                 "deviation reach / 2 around it "
                 "(local-p)",
                 [](auto& g) { g.field("reach", &T::reach, "words to each side", Range{1, kMostSize}); }));
  v.field(
      "readout", &T::readout,
      "of the state that asked, h, and the context c, as wide as the model: tanh(W[c; h]) (Luong), or the "
      "larger of each two of W[h; x; "
      "c], x being the step's input (Bahdanau)");
}

template <class V>
void fields(Of<RecurrentRecipe>, V& v) {
  using T = RecurrentRecipe;
  v.about("Recurrent", "Cells that read a text word by word.");
  v.field(
      "cell", &T::cell,
      "gru (the reset gate after the product, as in PyTorch), lstm, or rnn, the plain cell without gates: "
      "h = tanh(W x + U h + b)");
  v.field("layers", &T::layers, "on top of each other", kLayers);
  v.field("width", &T::width, "of a state; 0: the model's width", kSize);
  v.field("both_ways", &T::both_ways,
          "encoder: a second row of cells reads from the end; both states stand beside each other");
  v.field("dropout", &T::dropout, "between layers", kShare);
  v.field(
      "start", &T::start,
      "decoder: the first state. last: the encoder's last states, layer by layer, of both directions beside "
      "each other (zeros without an "
      "encoder); projected: tanh(W of the last layer's last state; both ways: of the one that read "
      "backwards); zero");
  v.field("attention", &T::attention, "decoder: how it looks at the source");
}

template <class V>
void fields(Of<StackRecipe>, V& v) {
  using T = StackRecipe;
  v.about("Stack", "Layers on top of each other.");
  v.field("layers", &T::layers, "how many", kLayers);
  v.field("pattern", &T::pattern, "letters of `kinds`, repeated from the first layer on: \"LLLLLG\"");
  v.field("kinds", &T::kinds, "a layer for each letter; on top of a preset null removes one");
  v.field("groups", &T::groups,
          "layers share weights: layer i has those of group floor(i groups / layers) (ALBERT: 1); 0: each "
          "has its own",
          kSize);
  v.field("final_norm", &T::final_norm, "after the last layer");
  v.field("dropout", &T::dropout, "after the final norm (T5)", kShare);
  v.field("recurrent", &T::recurrent,
          "cells instead of layers: no kinds and no norm then; "
          "without an encoder or attention they are as wide as the model");
}

template <class V>
void fields(Of<PatchRecipe>, V& v) {
  using T = PatchRecipe;
  v.about(
      "Patches",
      "Pictures in the place of tokens (ViT): squares of pixels, each a row of channels, rows and columns "
      "times a matrix; learned tokens stand before them. Positions are learned, or there are none. The "
      "model has no vocabulary, and its context is the number of rows of its own picture.");
  v.field("size", &T::size, "pixels of a square's side", kCount);
  v.field("channels", &T::channels, "of a pixel", kCount);
  v.field("rows", &T::rows, "of the picture the model is made for, in patches", kCount);
  v.field("columns", &T::columns, "of the same, likewise", kCount);
  v.field("bias", &T::bias, "the matrix has one");
  v.field("cls", &T::cls, "a learned token before the patches, with a position");
  v.field("distill", &T::distill, "a second one (DeiT)");
  v.field("registers", &T::registers, "learned tokens behind those, without a position (DINOv2)",
          Range{0, 65536});
  v.field("resample", &T::resample,
          "positions of pictures of another size: cubic between neighbours (a = -0.75), or with a filter as "
          "wide as the step where they become fewer (a = -0.5)");
}

template <class V>
void fields(Of<EmbedRecipe>, V& v) {
  using T = EmbedRecipe;
  v.about("Embed", "From token ids to vectors.");
  v.choice("scale", &T::scale_sqrt_width, "factor on token vectors",
           bare("number", &T::scale, "this number", kNonzero),
           word("sqrt(width)", "the root of the width (2017, Gemma)"));
  v.choice("pos", &T::pos, "absolute positions, added to token vectors", word("none", "not here"),
           group("sinusoid", "sines and cosines",
                 [](auto& g) {
                   g.field("layout", &T::layout,
                           "sine and cosine alternate (2017), or all sines first (Marian)");
                   g.field("table", &T::table,
                           "frequencies 10000^(-2i/d), or 10000^(-i/(d/2-1)) (marian-dev, fairseq)");
                   g.field("first", &T::first, "position of the first token (M2M100: 2)", kSize);
                 }),
           word("learned", "one vector per position below `context`"));
  v.field("norm", &T::norm, "on the sum");
  v.field("types", &T::types, "token types with a vector each (BERT: 2)", Range{0, 65536});
  v.field("sink_tokens", &T::sink_tokens, "learned tokens put before every sequence", Range{0, 65536});
  v.field("width", &T::width,
          "of token vectors and the output matrix; a matrix makes the model's width of them; 0: the model's "
          "width",
          kSize);
  v.field("project", &T::project,
          "where that matrix stands: on the tokens' vectors (OPT), or after the sum and its norm (ALBERT)");
  v.field("project_bias", &T::project_bias, "it has a bias");
  v.field("own_source", &T::own_source,
          "encoder-decoder: the encoder has learned positions and a norm of its own (BART)");
  v.field("source_vocab", &T::source_vocab,
          "encoder-decoder: the encoder's vocabulary where it is another one; 0: one table for both", kSize);
  v.field("dropout", &T::dropout, "on the result", kShare);
  v.field("patches", &T::patches, "the model reads pictures");
}

template <class V>
void fields(Of<HeadTransform>, V& v) {
  using T = HeadTransform;
  v.about("Transform",
          "BERT's step before the output matrix: a matrix with bias, an activation, a norm. It is as wide as "
          "the output matrix (embed.width).");
  v.field("act", &T::act, "the activation");
  v.field("linear", &T::linear, "there is no activation (OPT)");
  v.field("bias", &T::bias, "the matrix has one");
  v.field("norm", &T::norm, "the norm after it; null: none (BERT's pooler: act tanh, no norm)");
}

template <class V>
void fields(Of<PoolAttention>, V& v) {
  using T = PoolAttention;
  v.about(
      "PoolAttention",
      "One row for a sequence (SigLIP): a learned query attends to all rows, with biases everywhere; then "
      "x + ffn(norm(x)).");
  v.field("heads", &T::heads, "of the attention", kCount);
  v.field("act", &T::act, "of the feed-forward net");
  v.field("ffn", &T::ffn, "its hidden width; 0: 4 * the model's width", kSize);
  v.field("norm", &T::norm, "before it");
}

template <class V>
void fields(Of<HeadRecipe>, V& v) {
  using T = HeadRecipe;
  v.about("Head", "From the last hidden state to the result.");
  v.field(
      "kind", &T::kind,
      "logits over the vocabulary; or none: the hidden state is the result; or classes: one row of logits "
      "per sequence, over `classes`; or vector: one vector per sequence (CLIP)");
  v.field("classes", &T::classes, "kind classes: how many, at least 2", kSize);
  v.field("width", &T::width,
          "kind vector: of the vector, which a matrix makes; 0: there is none, the pooled row is the vector",
          kSize);
  v.choice("pool", &T::pool, "kinds classes and vector: what stands for a sequence",
           word("first", "its first row"), word("mean", "the mean of its rows; of a picture, of its patches"),
           word("last", "its last row"),
           word("both", "pictures: the first row, beside it the mean of the patches (DINOv2)"),
           body("token", &T::token,
                "the first row that holds this token, the first of all where none does (CLIP); 0: the row "
                "with the highest id",
                kSize),
           body("attention", &T::attend, "what a learned query sees of all rows (SigLIP)"));
  v.field("pool_norm", &T::pool_norm, "on that row (CLIP)");
  v.field("distilled", &T::distilled,
          "kind classes: a second matrix for the second row; the mean of both is the result (DeiT)");
  v.field("tied", &T::tied, "the output matrix is the table of token vectors");
  v.field("bias", &T::bias, "on the logits");
  v.field("scale", &T::scale, "on the hidden state before the matrix (T5: width^-0.5)", kNonzero);
  v.field("cap", &T::cap, "logits softly limited to this (Gemma 2: 30); 0: not", kNotNegative);
  v.field("transform", &T::transform, "a step before the matrix");
}

template <class V>
void fields(Of<InitRecipe>, V& v) {
  using T = InitRecipe;
  v.about("Init", "Starting values of weights.");
  v.field("scheme", &T::scheme, "normal with `std`; xavier: uniform by fan in and out; t5: by role");
  v.field("std", &T::std, "deviation of the normal scheme", kPositive);
  v.field("scale_residual", &T::scale_residual, "output projections divided by sqrt(2 * layers) (GPT-2)");
}

template <class V>
void fields(Of<Recipe>, V& v) {
  using T = Recipe;
  v.about(
      "Recipe",
      "A whole model. `\"preset\": NAME` starts from a preset; what is written beside it overrides: objects "
      "merge, lists and values "
      "replace, null removes.");
  v.field("name", &T::name, "what it is called");
  v.field("note", &T::note, "one line about it");
  v.field("width", &T::width, "channels of the residual stream", kCount);
  v.field(
      "vocab", &T::vocab,
      "token ids; 0 only where no head gives logits over it: the model then reads pictures or vectors, not "
      "tokens",
      kSize);
  v.field("context", &T::context,
          "longest sequence it is meant for; of pictures it follows from their patches", kSize);
  v.field("embed", &T::embed, "the embedding");
  v.field("encoder", &T::encoder, "a stack that reads a whole text (BERT), or the source of a translation");
  v.field("decoder", &T::decoder,
          "a stack that writes token by token (GPT); with an encoder its layers need a `cross` part");
  v.field("head", &T::head, "the output");
  v.field("init", &T::init, "starting values");
}

}  // namespace rapt
