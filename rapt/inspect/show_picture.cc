// SPDX-License-Identifier: Apache-2.0
// A recipe as a block diagram: embedding, stacks, head, then heads and groups of each attention. The residual
// stream is one straight line; a decoder beside an encoder has it at the right, so that its cross-attention
// stands towards the encoder.
#include <algorithm>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/inspect/show.h"
#include "rapt/inspect/show_parts.h"
#include "rapt/nn/size.h"
#include "rapt/recipe/recipe_fields.h"
#include "rapt/recipe/recurrent_recipe.h"

namespace rapt {
namespace {

constexpr double kStream = 30;  // from a frame's side to the residual stream
constexpr double kBranch = 26;  // from there to the branches

using Lines = std::vector<std::string>;

// To four digits, for people.
double rounded(double x) {
  const double unit = std::pow(10, 3 - std::floor(std::log10(std::abs(x))));
  return std::round(x * unit) / unit;
}

class RecipePicture {
 public:
  RecipePicture(const Recipe& recipe, Language language) : r_(recipe), words_(language) {}

  std::string svg() {
    Diagram d;
    double y = heading(d);
    const bool both = r_.encoder && r_.decoder;
    double bottom = y;
    if (both) bottom = side_by_side(d, y);
    else {
      const Block one =
          whole(r_.encoder ? *r_.encoder : *r_.decoder, r_.encoder ? "encoder" : "decoder", true);
      one.draw(d, kLeft, y);
      bottom = y + one.height;
    }
    panels(d, bottom + 34);
    return d.svg(r_.name);
  }

 private:
  static constexpr double kLeft = 18;

  double heading(Diagram& d) const {
    d.text(kLeft, 30, r_.name, 17, "ink", Diagram::Anchor::start, true);
    Lines facts = {words_("sizes.parameters", short_count(static_cast<double>(count_parameters(r_).total))),
                   words_("sizes.width", with_commas(r_.width))};
    if (r_.vocab > 0) facts.push_back(words_("sizes.vocab", with_commas(r_.vocab)));
    facts.push_back(words_("sizes.context", with_commas(r_.context)));
    d.text(kLeft, 50, join(facts, " · "), 12, "soft");
    return 74;
  }

  // ---------------------------------------------------------------- blocks on a stream
  Block on_stream(Block b) const { return moved_port(std::move(b), kStream, mirrored_); }

  // Something that is added to the stream, from its side.
  Block added(Block what) const {
    const double width = kStream + kBranch + what.width, height = std::max(20.0, what.height);
    const double port = mirrored_ ? width - kStream : kStream;
    return {width, height, port, port, [=, mirrored = mirrored_](Diagram& d, double x, double y) {
              const double middle = y + height / 2, side = mirrored ? x + what.width : x + kStream + kBranch,
                           edge = mirrored ? x + port - 8 : x + port + 8;
              d.wire({{x + port, y}, {x + port, y + height}});
              what.draw(d, mirrored ? x : side, y + (height - what.height) / 2);
              d.wire({{side, middle}, {edge, middle}}, true);
              d.circle(x + port, middle, "+");
            }};
  }

  std::vector<Block> embedding(bool source) const {
    const EmbedRecipe& e = r_.embed;
    const bool both = r_.encoder && r_.decoder;
    std::vector<Block> out;
    out.push_back(on_stream(words_block(words_(e.patches       ? "in.pictures"
                                               : r_.vocab == 0 ? "in.vectors"
                                               : !both         ? "in.tokens"
                                               : source        ? "in.source"
                                                               : "in.target"))));
    const Dim narrow = e.width > 0 ? e.width : r_.width,
              summed = e.project == EmbedRecipe::Project::sum ? narrow : r_.width;
    const auto project = [&](EmbedRecipe::Project at) {
      if (narrow != r_.width && e.project == at)
        out.push_back(on_stream(
            box_block({words_("embed.project"), size_text(narrow, r_.width, e.project_bias)}, "matrix")));
    };
    if (e.patches) {
      const PatchRecipe& p = *e.patches;
      out.push_back(on_stream(box_block({words_("embed.patches", p.size, p.rows * p.columns),
                                         size_text(p.channels * p.size * p.size, r_.width, p.bias)},
                                        "matrix")));
      if (p.named() > 0)
        out.push_back(on_stream(box_block({words_(p.distill ? "embed.cls_distill" : "embed.cls")}, "plain")));
    } else if (r_.vocab > 0) {
      const Dim rows = source && e.source_vocab > 0 ? e.source_vocab : r_.vocab;
      out.push_back(
          on_stream(box_block({words_("embed.tokens"), concat(with_commas(rows), " × ", with_commas(narrow)),
                               e.scale_sqrt_width ? concat("× √", with_commas(r_.width))
                               : e.scale != 1     ? concat("× ", shortest(e.scale))
                                                  : ""},
                              "matrix")));
    }
    project(EmbedRecipe::Project::tokens);
    if (e.sink_tokens > 0)
      out.push_back(on_stream(box_block({words_("embed.sinks", with_commas(e.sink_tokens))}, "plain")));
    if (e.pos == EmbedRecipe::Pos::learned)
      out.push_back(added(box_block(
          {words_("embed.learned"),
           concat(with_commas(e.patches ? e.patches->positions() : r_.context), " × ", with_commas(summed))},
          "position")));
    if (e.pos == EmbedRecipe::Pos::sinusoid)
      out.push_back(
          added(box_block({words_("embed.sinusoid"),
                           words_(e.layout == SinusoidLayout::pairs ? "embed.pairs" : "embed.halves")},
                          "position")));
    if (e.types > 0)
      out.push_back(added(box_block(
          {words_("embed.types"), concat(with_commas(e.types), " × ", with_commas(summed))}, "matrix")));
    if (e.patches && e.patches->registers > 0)
      out.push_back(
          on_stream(box_block({words_("embed.registers", with_commas(e.patches->registers))}, "plain")));
    if (e.norm) out.push_back(on_stream(norm_block(words_, *e.norm)));
    project(EmbedRecipe::Project::sum);
    return out;
  }

  // ---------------------------------------------------------------- layers and stacks
  Block branch(const PartRecipe& p) const {
    std::vector<Block> all;
    if (p.norm_in) all.push_back(norm_block(words_, *p.norm_in));
    all.push_back(part_block(words_, p, r_.width));
    if (p.norm_out) all.push_back(norm_block(words_, *p.norm_out));
    if (p.layer_scale != 0) all.push_back(box_block({words_("layer_scale")}, "gate"));
    if (p.residual_scale != 1) all.push_back(box_block({concat("× ", shortest(p.residual_scale))}, "plain"));
    return column(std::move(all), 14);
  }

  struct Step {  // of a layer: what leaves the stream and comes back, then a norm on the stream
    Block branch, after;
  };
  Block layer(const LayerRecipe& l) const {
    std::vector<Step> steps;
    if (l.parallel) {
      std::vector<Block> lanes, all;
      for (const PartRecipe& p : l.parts) lanes.push_back(branch(p));
      if (l.norm_in) all.push_back(norm_block(words_, *l.norm_in));
      all.push_back(lanes.size() > 1 ? beside(std::move(lanes), "+") : std::move(lanes[0]));
      steps.push_back({column(std::move(all), 14), {}});
    } else {
      for (const PartRecipe& p : l.parts)
        steps.push_back({branch(p), p.norm_sum ? on_stream(norm_block(words_, *p.norm_sum)) : Block{}});
    }
    constexpr double kFork = 26, kJoin = 18, kAfter = 14;
    double width = 0, height = 8;
    for (const Step& s : steps) {
      width = std::max({width, kStream + kBranch + s.branch.width, s.after.width});
      height += kFork + s.branch.height + kJoin + 8 + (s.after.height > 0 ? kAfter + s.after.height : 0) + 4;
    }
    const double port = mirrored_ ? width - kStream : kStream;
    return {width, height, port, port, [=, mirrored = mirrored_](Diagram& d, double x, double y) {
              const double stream = x + port;
              double from = y;
              y += 8;
              for (const Step& s : steps) {
                const double left = mirrored ? x + width - kStream - kBranch - s.branch.width
                                             : x + kStream + kBranch,
                             in = left + s.branch.port, out = left + s.branch.exit, top = y + kFork,
                             join = top + s.branch.height + kJoin;
                d.wire({{stream, y + 8}, {in, y + 8}, {in, top}}, s.branch.tip);
                s.branch.draw(d, left, top);
                d.wire({{out, top + s.branch.height}, {out, join}, {stream + (mirrored ? -8 : 8), join}},
                       true);
                d.wire({{stream, from}, {stream, join - 8}}, true);
                d.circle(stream, join, "+");
                y = from = join + 8;
                if (s.after.height > 0) {
                  d.wire({{stream, y}, {stream, y + kAfter}}, true);
                  s.after.draw(d, stream - s.after.port, y + kAfter);
                  y = from = y + kAfter + s.after.height;
                }
                y += 4;
              }
              d.wire({{stream, from}, {stream, y}});
            }};
  }

  // The layers in their order, a square each.
  Block strip(const StackRecipe& s, double most) const {
    constexpr double kSide = 16, kPitch = 18;
    const Dim shown = std::min<Dim>(s.layers, 128);
    const Dim per_row = std::max<Dim>(1, static_cast<Dim>(most / kPitch));
    const Dim rows = (shown + per_row - 1) / per_row;
    const double width =
        static_cast<double>(std::min(shown, per_row)) * kPitch - 2 + (shown < s.layers ? 20 : 0);
    Block out{width, static_cast<double>(rows) * kPitch - 2, 0, 0};
    Lines kinds;
    for (Dim i = 0; i < shown; ++i)
      kinds.emplace_back(1, s.pattern[static_cast<std::size_t>(i) % s.pattern.size()]);
    std::string order;
    for (char c : s.pattern)
      if (order.find(c) == order.npos) order += c;
    out.draw = [=, cut = shown < s.layers](Diagram& d, double x, double y) {
      static constexpr const char* kLooks[] = {"matrix", "core", "position", "norm", "gate", "plain"};
      for (Dim i = 0; i < shown; ++i) {
        const double at = x + static_cast<double>(i % per_row) * kPitch,
                     down = y + static_cast<double>(i / per_row) * kPitch;
        const std::string& kind = kinds[static_cast<std::size_t>(i)];
        d.box(at, down, kSide, kSide, kLooks[order.find(kind[0]) % std::size(kLooks)], 2);
        d.text(at + kSide / 2, down + 12, kind, 10, "ink", Diagram::Anchor::middle);
      }
      if (cut)
        d.text(x + width - 10, y + static_cast<double>(rows) * kPitch - 8, "…", 12, "soft",
               Diagram::Anchor::middle);
    };
    return out;
  }

  std::string stack_title(const StackRecipe& s, const std::string& name) const {
    std::string title = concat(words_(name), " · ", words_("layers", with_commas(s.layers)));
    if (s.groups == 1) title = concat(title, ", ", words_("same_weights"));
    else if (s.groups > 1) title = concat(title, ", ", words_("weight_sets", with_commas(s.groups)));
    return title;
  }

  Block stack(const StackRecipe& s, const std::string& name) const {
    if (s.recurrent) return recurrent(s, name);
    std::vector<std::pair<std::string, Dim>> kinds;  // in the order of the pattern, with how many layers
    for (Dim i = 0; i < s.layers; ++i) {
      const std::string kind(1, s.pattern[static_cast<std::size_t>(i) % s.pattern.size()]);
      const auto it =
          std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.first == kind; });
      if (it == kinds.end()) kinds.emplace_back(kind, 1);
      else ++it->second;
    }
    if (kinds.size() == 1)
      return framed(concat(stack_title(s, name), s.layers > 1 ? words_("each") : ""),
                    layer(s.kinds.at(kinds[0].first)), "frame");
    std::vector<Block> frames;
    double width = 0, height = 0;
    for (const auto& [kind, count] : kinds) {
      frames.push_back(framed(words_("kind", kind, with_commas(count), with_commas(s.layers)),
                              layer(s.kinds.at(kind)), "plain"));
      width += frames.back().width + (frames.size() > 1 ? 14 : 0);
      height = std::max(height, frames.back().height);
    }
    // Layers in order, the flow passing by what each kind is.
    const Block row = strip(s, width);
    const double wide = kStream + 20 + width, high = row.height + 20 + height,
                 port = mirrored_ ? wide - kStream : kStream;
    const Block inner{wide, high, port, port, [=, mirrored = mirrored_](Diagram& d, double x, double y) {
                        const double first = mirrored ? x : x + kStream + 20;
                        d.wire({{x + port, y}, {x + port, y + high}});
                        row.draw(d, first, y);
                        double at = first;
                        for (const Block& f : frames) {
                          f.draw(d, at, y + row.height + 20);
                          at += f.width + 14;
                        }
                      }};
    return framed(stack_title(s, name), inner, "frame");
  }

  // ---------------------------------------------------------------- recurrent stacks
  // Three cells and an ellipsis, each handing its state to the next one.
  static Block cells(const std::string& cell, bool backwards) {
    const double side = text_pixels(cell, 11) + 14, pitch = side + 22, width = 3 * pitch + side;
    return {width, 26, width / 2, width / 2, [=](Diagram& d, double x, double y) {
              for (int i = 0; i < 4; ++i) {
                const double at = x + pitch * i;
                if (i == 2) d.text(at + side / 2, y + 17, "…", 12, "soft", Diagram::Anchor::middle);
                else {
                  d.box(at, y, side, 26, "core");
                  d.text(at + side / 2, y + 17, cell, 11, "ink", Diagram::Anchor::middle);
                }
                if (i == 3) continue;
                const Diagram::Spot a{at + side + 2, y + 13}, b{at + pitch - 2, y + 13};
                d.wire(backwards ? std::vector{b, a} : std::vector{a, b}, true);
              }
            }};
  }

  Block recurrent_encoder(const RecurrentRecipe& c, const std::string& cell) const {
    const auto lane = [&](bool back) {
      return column({box_block({words_(back ? "rnn.backward" : "rnn.forward"),
                                words_("rnn.state", with_commas(c.width))},
                               "matrix"),
                     cells(cell, back)},
                    10);
    };
    if (c.both_ways)
      return fan({lane(false), lane(true)},
                 {"s_j = [→h_j ; ←h_j]", words_("rnn.states", with_commas(2 * c.width))}, "plain");
    return column(
        {lane(false), box_block({"s_j = h_j", words_("rnn.states", with_commas(c.width))}, "plain")}, 12);
  }

  Block looking(const AlignRecipe& a) const {
    const bool before = a.at == AlignRecipe::At::previous;
    static constexpr const char* kScores[] = {"h·s_j", "h·W s_j", "v·tanh(W h + U s_j)",
                                              "v·tanh(W [h; s_j])"};
    Lines lines = {words_("rnn.attention"), concat("Q: h = h_", before ? "{t−1}" : "t", "  ·  K, V: s_j"),
                   concat("e_j = ", kScores[static_cast<std::size_t>(a.score)])};
    if (is_additive(a)) lines.push_back(words_("rnn.hidden", with_commas(a.width)));
    if (a.window == AlignRecipe::Window::monotonic)
      lines.push_back(concat("j = t − ", a.reach, " … t + ", a.reach));
    if (a.window == AlignRecipe::Window::predictive) {
      lines.push_back(concat("p = S σ(v·tanh(W h)), |j − p| ≤ ", a.reach));
      lines.push_back("a_j = softmax(e)_j exp(−(j − p)² / 2σ²)");
    }
    lines.push_back(a.window == AlignRecipe::Window::predictive ? "c = Σ a_j s_j" : "c = Σ softmax(e)_j s_j");
    Block b = box_block(lines, "core");
    return {b.width, b.height, b.port, b.exit, [b](Diagram& d, double x, double y) {
              b.draw(d, x, y);
              d.entries.push_back({x, y + b.height / 2});
            }};
  }

  Block recurrent(const StackRecipe& s, const std::string& name) const {
    const RecurrentRecipe& c = *s.recurrent;
    std::string cell(name_text(c.cell));
    for (char& l : cell) l = static_cast<char>(l >= 'a' && l <= 'z' ? l - 'a' + 'A' : l);
    const std::string title = concat(words_(name), " · ", words_("rnn.layers", with_commas(c.layers), cell));
    if (name == "encoder") return framed(title, recurrent_encoder(c, cell), "frame");
    const AlignRecipe* a = c.attention ? &*c.attention : nullptr;
    const bool previous = a && a->at == AlignRecipe::At::previous;
    Lines lines = {concat("h_t = ", cell, "(x_t", previous ? ", c_t" : "", a && a->feed ? ", r_{t−1}" : "",
                          ", h_{t−1})"),
                   words_("rnn.state", with_commas(c.width))};
    if (r_.encoder) {
      static constexpr const char* kStarts[] = {"rnn.start_last", "rnn.start_projected", "rnn.start_zero"};
      lines.push_back(words_(kStarts[static_cast<std::size_t>(c.start)]));
    }
    const Block step = column({box_block(lines, "matrix"), cells(cell, false)}, 10);
    std::vector<Block> all;
    if (previous) all.push_back(looking(*a));
    all.push_back(step);
    if (a && !previous) all.push_back(looking(*a));
    if (a) {
      const bool tanh = a->readout == AlignRecipe::Readout::tanh;
      all.push_back(
          box_block({tanh ? "r_t = tanh(W [c_t; h_t])"
                          : concat("r_t = maxout(W [", previous ? "h_{t−1}" : "h_t", "; x_t; c_t])"),
                     tanh ? concat("→ ", with_commas(r_.width))
                          : concat(with_commas(2 * r_.width), " → ", with_commas(r_.width)),
                     a->feed ? words_("rnn.feed") : ""},
                    "matrix"));
    }
    return framed(title, column(std::move(all), 14), "frame");
  }

  // ---------------------------------------------------------------- head and the whole
  std::vector<Block> head() const {
    const HeadRecipe& h = r_.head;
    const bool classes = h.kind == HeadRecipe::Kind::classes, pools = h.pools();
    std::vector<Block> out;
    if (pools) {
      Lines lines = {words_(concat("pool.", name_text(h.pool)))};
      if (h.pool == HeadRecipe::Pool::attention)
        lines.push_back(words_("pool.heads", with_commas(h.attend.heads)));
      out.push_back(on_stream(box_block(lines, "core")));
      if (h.pool_norm) out.push_back(on_stream(norm_block(words_, *h.pool_norm)));
    }
    if (h.kind != HeadRecipe::Kind::none) {
      const Dim wide = h.pool == HeadRecipe::Pool::both              ? 2 * r_.width
                       : h.transform && !pools && r_.embed.width > 0 ? r_.embed.width
                                                                     : r_.width;
      if (h.transform) {
        out.push_back(
            on_stream(box_block({words_("head.transform"), size_text(r_.width, wide, h.transform->bias),
                                 h.transform->linear ? "" : act_word(h.transform->act)},
                                "matrix")));
        if (h.transform->norm) out.push_back(on_stream(norm_block(words_, *h.transform->norm)));
      }
      if (!pools || classes || h.width > 0) {
        const Dim to = classes ? h.classes : pools ? h.width : r_.vocab;
        out.push_back(on_stream(
            box_block({words_("head.matrix"), size_text(wide, to, h.bias), h.tied ? words_("head.tied") : "",
                       h.scale != 1 ? words_("head.scale", shortest(rounded(h.scale))) : "",
                       h.cap > 0 ? concat(shortest(h.cap), " tanh(· / ", shortest(h.cap), ")") : "",
                       h.distilled ? words_("head.distilled") : ""},
                      "matrix")));
      }
    }
    out.push_back(on_stream(words_block(words_(classes                             ? "out.classes"
                                               : pools                             ? "out.vectors"
                                               : h.kind == HeadRecipe::Kind::vocab ? "out.logits"
                                                                                   : "out.hidden"))));
    return out;
  }

  Block whole(const StackRecipe& s, const std::string& name, bool with_head) const {
    std::vector<Block> all = embedding(name == "encoder" && r_.decoder);
    all.push_back(stack(s, name));
    if (s.final_norm) all.push_back(on_stream(norm_block(words_, *s.final_norm)));
    if (with_head)
      for (Block& b : head()) all.push_back(std::move(b));
    else all.push_back(on_stream(box_block({words_("out.memory")}, "plain")));
    return column(std::move(all), 16);
  }

  // The encoder at the left, the decoder's stream at the right; a line from the encoder's result to each
  // cross-attention between them.
  double side_by_side(Diagram& d, double y) {
    mirrored_ = false;
    const Block encoder = whole(*r_.encoder, "encoder", false);
    mirrored_ = true;
    const Block decoder = whole(*r_.decoder, "decoder", true);
    mirrored_ = false;
    const double gutter = kLeft + encoder.width + 26, right = gutter + 26;
    encoder.draw(d, kLeft, y);
    d.entries.clear();
    decoder.draw(d, right, y);
    const double out = y + encoder.height + 12, from = kLeft + encoder.exit;
    d.wire({{from, y + encoder.height}, {from, out}, {gutter, out}});
    for (const Diagram::Spot& to : d.entries) d.wire({{gutter, out}, {gutter, to.y}, {to.x, to.y}}, false);
    return y + std::max(encoder.height + 14, decoder.height);
  }

  // ---------------------------------------------------------------- heads and groups
  // One for every way to share heads; kinds of layers that do it alike stand together.
  struct Attending {
    const PartRecipe* part;
    std::string stack, kinds, reads;
  };
  static bool alike(const PartRecipe& a, const PartRecipe& b) {
    if (a.body.index() != b.body.index()) return false;
    const AttnRecipe *x = a.attention(), *y = b.attention();
    if (!x) return *a.delta() == *b.delta();
    return x->cross == y->cross && x->heads == y->heads && x->kv_heads == y->kv_heads &&
           x->head_dim == y->head_dim && x->v_dim == y->v_dim && x->latent == y->latent;
  }
  std::vector<Attending> attending() const {
    std::vector<Attending> all;
    const auto look = [&](const StackRecipe& s, const std::string& stack) {
      if (s.recurrent) return;
      for (const char kind : s.pattern) {
        const LayerRecipe& l = s.kinds.at(std::string(1, kind));
        for (const PartRecipe& p : l.parts) {
          if (!p.attention() && !p.delta()) continue;
          const std::string reads =
              words_(p.norm_in || l.norm_in ? "from.normed" : "from.plain", words_(stack));
          const auto same = std::find_if(all.begin(), all.end(), [&](const Attending& a) {
            return a.stack == stack && a.reads == reads && alike(*a.part, p);
          });
          if (same == all.end()) all.push_back({&p, stack, std::string(1, kind), reads});
          else if (same->kinds.find(kind) == std::string::npos) same->kinds += kind;
        }
      }
      std::string kinds;
      for (const char kind : s.pattern)
        if (kinds.find(kind) == std::string::npos) kinds += kind;
      for (Attending& a : all)
        if (a.kinds == kinds) a.kinds.clear();  // all layers: no need to say
    };
    if (r_.encoder) look(*r_.encoder, "encoder");
    if (r_.decoder) look(*r_.decoder, "decoder");
    return all;
  }

  void panels(Diagram& d, double y) const {
    const std::vector<Attending> all = attending();
    if (all.empty()) return;
    d.text(kLeft, y, words_("heads.title"), 15, "ink", Diagram::Anchor::start, true);
    y += 18;
    for (const Attending& a : all) {
      const PartRecipe& p = *a.part;
      std::string title = concat(words_(a.stack), " · ", words_(concat("part.", part_name(p).word)));
      if (!a.kinds.empty()) title = concat(title, " (", a.kinds, ")");
      const Block b = p.attention()
                          ? heads_panel(words_, *p.attention(),
                                        {title, a.reads, p.cross() ? words_("from.memory") : a.reads})
                          : heads_panel(words_, *p.delta(), title);
      b.draw(d, kLeft, y);
      y += b.height + 26;
    }
  }

  const Recipe& r_;
  const ShowWords words_;
  bool mirrored_ = false;  // the stream at the right
};

}  // namespace

std::string recipe_svg(const Recipe& recipe, Language language) {
  return RecipePicture(recipe, language).svg();
}

}  // namespace rapt
