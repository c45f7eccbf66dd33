// SPDX-License-Identifier: Apache-2.0
// What a recipe may be: ranges of its fields (a visitor over recipe_fields.h) and the rules between them.
// Rules inside a part: parts/.
#include <algorithm>

#include "rapt/base/json.h"
#include "rapt/base/text.h"
#include "rapt/recipe/recipe_fields.h"
#include "rapt/recipe/recurrent_recipe.h"

namespace rapt {
namespace {

// --------------------------------------------------------------------------- ranges of a recipe made in C++
template <class T>
class Checker;

void check(bool, const std::string&, const Range&, std::string_view) {}
void check(const std::string&, const std::string&, const Range&, std::string_view) {}
void check(double v, const std::string& path, const Range& range, std::string_view meaning) {
  if (const std::string why = breaks(range, v); !why.empty())
    fail(path, ": ", why, ", is ", v, " (", meaning, ")");
}
void check(Dim v, const std::string& path, const Range& range, std::string_view meaning) {
  check(static_cast<double>(v), path, range, meaning);
}
template <Enum E>
void check(E v, const std::string& path, const Range&, std::string_view) {
  if (static_cast<std::size_t>(v) >= names_of(E{}).size())
    fail(path, ": a recipe cannot have this value; ", name_hint("", names<E>()));
}
template <class T>
  requires std::is_class_v<T>
void check(const T& v, const std::string& path, const Range& = {}, std::string_view = {}) {
  Checker<T> checker{v, path};
  fields(Of<T>{}, checker);
}
template <class T>
void check(const std::optional<T>& v, const std::string& path, const Range& range, std::string_view meaning) {
  if (v) check(*v, path, range, meaning);
}
template <class T>
void check(const std::vector<T>& v, const std::string& path, const Range& range, std::string_view meaning) {
  for (std::size_t i = 0; i < v.size(); ++i) check(v[i], concat(path, "[", i, "]"), range, meaning);
}
std::string part_path(const std::string& parts, std::size_t i, const PartRecipe& p) {
  return concat(parts, "[", i, "].", part_name(p).word);
}
void check(const std::vector<PartRecipe>& v, const std::string& path, const Range&, std::string_view) {
  for (std::size_t i = 0; i < v.size(); ++i) {
    const std::string at = part_path(path, i, v[i]);
    check(v[i], at);
    std::visit([&](const auto& body) { check(body, at); }, v[i].body);
  }
}
void check(const std::map<std::string, LayerRecipe>& v, const std::string& path, const Range&,
           std::string_view) {
  for (const auto& [name, layer] : v) check(layer, under(path, name));
}

template <class T>
class Checker {
 public:
  Checker(const T& in, const std::string& path) : in_(in), path_(path) {}
  void about(std::string_view, std::string_view) {}
  template <class M>
  void field(std::string_view name, M T::* member, std::string_view meaning, Range range = {}) {
    check(in_.*member, under(path_, name), range, meaning);
  }
  template <class E, class... Options>
  void choice(std::string_view name, E T::* kind, std::string_view, const Options&... options) {
    const std::string path = name.empty() ? path_ : under(path_, name);
    const auto chosen = static_cast<std::size_t>(in_.*kind);
    if (chosen >= sizeof...(options)) fail(path, ": a recipe cannot have this value");
    std::size_t i = 0;
    ((i++ == chosen ? option(options, path) : void()), ...);
  }

 private:
  void option(const Word&, const std::string&) {}
  template <class M>
  void option(const Bare<T, M>& o, const std::string& path) {
    check(in_.*(o.member), path, o.range, o.meaning);
  }
  template <class M>
  void option(const Body<T, M>& o, const std::string& path) {
    check(in_.*(o.member), under(path, o.name), o.range, o.meaning);
  }
  template <class F>
  void option(const Group<F>& o, const std::string& path) {
    Checker checker(in_, under(path, o.name));
    o.fields(checker);
  }
  const T& in_;
  const std::string path_;
};
// ------------------------------------------------------------------------------------- rules between fields

struct Rules {
  Recipe& recipe;
  const bool both;  // encoder and decoder

  void layer(LayerRecipe& l, const std::string& path, bool decoder) const {
    if (l.parts.empty())
      fail(path, ".parts: a layer needs at least one part, {\"self\": {…}} or {\"ffn\": {…}}");
    const bool causal = decoder || is_causal(l);
    if (l.norm_in && !l.parallel)
      fail(path, ".norm_in: belongs to parallel layers; elsewhere norms stand on the parts");
    check_norm(l.norm_in, path + ".norm_in", causal);
    for (std::size_t i = 0; i < l.parts.size(); ++i) {
      PartRecipe& p = l.parts[i];
      const std::string at = part_path(path + ".parts", i, p);
      if (reads_memory(p) && !decoder)
        fail(at, ": an encoder has no memory to look at; cross parts belong to a decoder");
      if (reads_memory(p) && !both)
        fail(at, ": there is no encoder whose result could be looked at; add one or remove the part");
      if (l.parallel && l.norm_in && p.norm_in)
        fail(at, ".norm_in: the layer has a norm_in for all parts already; keep one of the two");
      if (l.parallel && p.norm_sum)
        fail(at,
             ".norm_sum: parts of a parallel layer are added together, so there is no sum after one of them; "
             "use norm_in or norm_out");
      check_norm(p.norm_in, at + ".norm_in", causal);
      check_norm(p.norm_out, at + ".norm_out", causal);
      check_norm(p.norm_sum, at + ".norm_sum", causal);
      std::visit([&](auto& body) { rapt::resolve(body, PartPlace{recipe, at, decoder}); }, p.body);
    }
  }

  void stack(StackRecipe& s, const std::string& path, bool decoder) const {
    if (s.recurrent) return resolve_recurrent(recipe, s, path, decoder);
    if (s.pattern.empty()) fail(path, ".pattern: is empty; name a kind for at least one layer, as in \"L\"");
    if (static_cast<Dim>(s.pattern.size()) > s.layers)
      fail(path, ".pattern: \"", s.pattern, "\" has ", s.pattern.size(), " letters for ", s.layers,
           " layers; shorten it or add layers");
    for (const auto& [name, l] : s.kinds) {
      const bool letter =
          name.size() == 1 && ((name[0] >= 'A' && name[0] <= 'Z') || (name[0] >= 'a' && name[0] <= 'z'));
      if (!letter)
        fail(path, ".kinds: '", name,
             "' is no letter; a kind is named by one letter, which `pattern` repeats");
      if (s.pattern.find(name[0]) == std::string::npos)
        fail(path, ".kinds.", name, ": the pattern \"", s.pattern,
             "\" never uses it; remove it (null on top of a preset) or put it into the pattern");
    }
    if (s.groups > s.layers)
      fail(path, ".groups: ", s.groups, " groups of weights for ", s.layers, " layers; lower it");
    if (s.groups > 0 && s.pattern.find_first_not_of(s.pattern[0]) != std::string::npos)
      fail(path, ".groups: layers that share weights are of one kind, the pattern \"", s.pattern,
           "\" has several");
    bool causal = decoder, has_cross = false;
    for (const char c : s.pattern) {
      const auto it = s.kinds.find(std::string(1, c));
      if (it == s.kinds.end())
        fail(path, ".pattern: names '", c, "', but kinds has no such layer; add kinds.", c,
             " or change the pattern");
      causal = causal || is_causal(it->second);
      for (const PartRecipe& p : it->second.parts) has_cross = has_cross || reads_memory(p);
    }
    if (decoder && both && !has_cross)
      fail(path,
           ": no layer has a cross part, so nothing would read the encoder; add {\"cross\": {…}} or remove "
           "the encoder");
    check_norm(s.final_norm, path + ".final_norm", causal);
    const AttnRecipe *shared = nullptr, *relative = nullptr;
    for (auto& [name, l] : s.kinds) layer(l, concat(path, ".kinds.", name), decoder);
    for (auto& [name, l] : s.kinds)
      for (std::size_t i = 0; i < l.parts.size(); ++i) {
        const AttnRecipe* a = l.parts[i].self();
        if (a && a->pos.kind == PosRecipe::Kind::relative) {
          if (!relative) relative = a;
          if (!(a->pos.relative == relative->pos.relative))
            fail(part_path(concat(path, ".kinds.", name, ".parts"), i, l.parts[i]),
                 ".pos.relative: layers share one table, so all of it must agree");
        }
        if (!a || a->pos.kind != PosRecipe::Kind::bucket || !a->pos.bucket.shared) continue;
        if (!shared) shared = a;
        if (a->heads != shared->heads || !(a->pos.bucket == shared->pos.bucket))
          fail(
              part_path(concat(path, ".kinds.", name, ".parts"), i, l.parts[i]),
              ".pos.bucket: layers share one table, so heads, count and max must agree; set shared to false");
      }
    const MoeRecipe* pooled = nullptr;
    for (auto& [name, l] : s.kinds)
      for (std::size_t i = 0; i < l.parts.size(); ++i) {
        const MoeRecipe* m = l.parts[i].moe();
        if (!m || m->balance_over != MoeRecipe::Pooling::stack) continue;
        if (!pooled) pooled = m;
        if (m->experts != pooled->experts || m->used != pooled->used || m->balance != pooled->balance)
          fail(part_path(concat(path, ".kinds.", name, ".parts"), i, l.parts[i]),
               ".balance_over: layers are balanced together, so experts, used and balance must agree; "
               "set it to \"layer\"");
      }
  }

  // What a model of pictures cannot have; its context follows from its patches.
  void pictures() const {
    const EmbedRecipe& e = recipe.embed;
    if (!e.patches) {
      if (recipe.context < 1)
        fail("context: must be at least 1, is 0 (longest sequence it is meant for)");
      return;
    }
    if (recipe.vocab > 0)
      fail("embed.patches: the model reads pictures, and vocab is ", recipe.vocab, "; remove one of the two");
    if (!recipe.encoder || recipe.decoder || recipe.encoder->recurrent)
      fail("embed.patches: pictures are read by an encoder of layers alone; there is ",
           recipe.decoder ? "a decoder" : "a recurrent one");
    const char* other = e.pos == EmbedRecipe::Pos::sinusoid ? "pos"
                        : e.types > 0                        ? "types"
                        : e.sink_tokens > 0                  ? "sink_tokens"
                        : e.width > 0 && e.width != recipe.width ? "width"
                        : e.scale != 1 || e.scale_sqrt_width     ? "scale"
                                                                 : nullptr;
    if (other)
      fail("embed.", other, ": belongs to tokens, and the model reads pictures (embed.patches); remove it",
           e.pos == EmbedRecipe::Pos::sinusoid ? ", or use learned positions" : "");
    const Dim rows = e.patches->before() + e.patches->rows * e.patches->columns;
    if (e.patches->rows > 65536 || e.patches->columns > 65536 || e.patches->size > 65536 ||
        e.patches->channels > 65536)
      fail("embed.patches: sizes go up to 65536");
    if (recipe.context == 0) recipe.context = rows;
    if (recipe.context != rows)
      fail("context: is ", recipe.context, ", a picture of ", e.patches->rows, " x ", e.patches->columns,
           " patches has ", rows, " rows; leave it away");
  }

  void head() const {
    HeadRecipe& h = recipe.head;
    using Pool = HeadRecipe::Pool;
    const bool classes = h.kind == HeadRecipe::Kind::classes, vector = h.kind == HeadRecipe::Kind::vector;
    if (classes && h.classes < 2)
      fail("head.classes: is ", h.classes,
           "; a classifier chooses between at least 2, or use kind \"vocab\" or \"none\"");
    if (h.pools() && h.tied)
      fail(
          "head.tied: the table of token vectors has a row per token, not per ",
          classes ? "class" : "channel of a vector", "; remove it, or use kind \"vocab\"");
    if (!classes && (h.classes != 0 || h.distilled))
      fail("head.", h.classes != 0 ? "classes" : "distilled",
           ": belongs to a head of kind \"classes\"; remove it, or set that kind");
    if (!h.pools() && (h.pool != Pool::first || h.pool_norm))
      fail("head.", h.pool_norm ? "pool_norm" : "pool",
           ": belongs to a head of kind \"classes\" or \"vector\"; remove it, or set such a kind");
    if (!vector && h.width != 0)
      fail("head.width: belongs to a head of kind \"vector\"; remove it, or set that kind");
    if (vector && ((h.bias && h.width == 0) || h.scale != 1 || h.cap != 0))
      fail("head.", h.cap != 0 ? "cap" : h.scale != 1 ? "scale" : "bias",
           h.bias && h.width == 0 ? ": a vector without a matrix has none; set head.width"
                                  : ": belongs to logits; remove it");
    if (h.distilled && (!recipe.embed.patches || !recipe.embed.patches->distill || h.pool != Pool::first))
      fail("head.distilled: the second row must be the one of embed.patches.distill, and the pool \"first\"");
    if (h.pool == Pool::both && (!recipe.embed.patches || h.transform || h.pool_norm))
      fail("head.pool: both stands for the first row and the mean of a picture's patches, without a norm or ",
           "a transform between them and the matrix");
    if (h.pool == Pool::token && h.token >= recipe.vocab)
      fail("head.pool.token: is ", h.token, ", the vocabulary has ", recipe.vocab);
    if (h.pool == Pool::attention) {
      if (recipe.width % h.attend.heads != 0)
        fail("head.pool.attention.heads: ", h.attend.heads, " do not divide the width ", recipe.width);
      if (h.attend.ffn == 0) h.attend.ffn = 4 * recipe.width;
    }
    if (h.kind == HeadRecipe::Kind::none && (h.tied || h.bias || h.scale != 1 || h.cap != 0 || h.transform))
      fail("head.",
           h.tied         ? "tied"
           : h.bias       ? "bias"
           : h.scale != 1 ? "scale"
           : h.cap != 0   ? "cap"
                          : "transform",
           ": a head of kind none has no output matrix; remove it, or use kind \"vocab\"");
  }

  void whole() const {
    const HeadRecipe& h = recipe.head;
    const EmbedRecipe& e = recipe.embed;
    if (!recipe.encoder && !recipe.decoder)
      fail("a model needs an encoder, a decoder or both; this recipe has neither");
    if (recipe.vocab == 0 && h.kind == HeadRecipe::Kind::vocab)
      fail("vocab: is 0, but the head gives logits over a vocabulary; set vocab, or head.kind \"none\"");
    if (recipe.vocab == 0 && e.sink_tokens > 0)
      fail("embed.sink_tokens: they stand beside tokens, and vocab is 0");
    if (e.scale_sqrt_width && e.scale != 1)
      fail("embed.scale: sqrt(width) and the number ", e.scale, " together; choose one");
    if (e.pos == EmbedRecipe::Pos::sinusoid) {
      if (recipe.width % 2 != 0)
        fail("embed.pos.sinusoid: sines and cosines come in pairs, width ", recipe.width, " is odd");
      if (e.table == SinusoidTable::marian && recipe.width < 4)
        fail("embed.pos.sinusoid.table: marian's frequencies need a width of at least 4, it is ",
             recipe.width);
    }
    const bool both_stacks = recipe.encoder && recipe.decoder;
    if (e.source_vocab > 0 && !both_stacks)
      fail("embed.source_vocab: only an encoder-decoder reads a second vocabulary; set vocab");
    if (e.own_source && !both_stacks)
      fail("embed.own_source: only an encoder-decoder has two stacks with positions; remove it");
    if (e.width > 0 && e.width != recipe.width) {
      if (h.kind == HeadRecipe::Kind::vocab && !h.transform)
        fail("embed.width: token vectors have ", e.width, " channels, rows of the model ", recipe.width,
             "; the output matrix is as narrow: add head.transform, which makes the one of the other");
      if (e.sink_tokens > 0) fail("embed.sink_tokens: they are as wide as the model; remove embed.width");
    }
    pictures();
    head();
    bool causal = recipe.decoder.has_value();
    if (recipe.encoder) stack(*recipe.encoder, "encoder", false);
    if (recipe.decoder) stack(*recipe.decoder, "decoder", true);
    if (recipe.encoder)
      for (const auto& [name, l] : recipe.encoder->kinds) causal = causal || is_causal(l);
    check_norm(e.norm, "embed.norm", causal);
    if (h.transform) check_norm(h.transform->norm, "head.transform.norm", causal);
    check_norm(h.pool_norm, "head.pool_norm", causal);
    if (h.pool == HeadRecipe::Pool::attention) check_norm(h.attend.norm, "head.pool.attention.norm", causal);
  }
};

}  // namespace

Recipe resolve(Recipe recipe) {
  try {
    check(recipe, "");
    Rules{recipe, recipe.encoder && recipe.decoder}.whole();
  } catch (const Error& e) {
    throw Error(concat("recipe ", json_quote(recipe.name), ": ", e.what()), e.kind());
  }
  return recipe;
}

}  // namespace rapt
