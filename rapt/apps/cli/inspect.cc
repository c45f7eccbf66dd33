// SPDX-License-Identifier: Apache-2.0
// rapt inspect: what the attention of a model does on a text.
#include <algorithm>
#include <cmath>

#include "rapt/apps/cli/model_args.h"
#include "rapt/base/text.h"
#include "rapt/inspect/heads.h"
#include "rapt/inspect/picture.h"

namespace rapt::cli {
namespace {

const char* const kDefaultText =
    "The cat sat on the mat because it was warm, and the dog, who had been out in the rain, lay down beside it.";

// A block whose colour, or shade where there is none, is a share.
std::string cell(double share, bool color) {
  static constexpr const char* kShades[] = {" ", "░", "▒", "▓", "█"};
  const double s = std::clamp(share, 0.0, 1.0);
  if (!color) return std::string(kShades[std::min(4, static_cast<int>(s * 5))]) + kShades[std::min(4, static_cast<int>(s * 5))];
  return concat("\033[48;5;", 232 + std::min(23, static_cast<int>(s * 24)), "m  \033[0m");
}

struct Input {
  std::vector<std::int32_t> ids, source;
  std::vector<std::string> words;
};

Input read_input(const Checkpoint& c, const std::string& text) {
  const Tokenizer& t = tokenizer_of(c);
  Input in;
  std::vector<std::int32_t> ids = t.frame(t.encode(text));
  const Dim most = c.model->recipe.context;
  if (most > 0 && static_cast<Dim>(ids.size()) > most) {
    note(concat("note: only the first ", most, " of ", ids.size(), " tokens fit the model"));
    ids.resize(static_cast<std::size_t>(most));
  }
  for (std::int32_t id : ids) in.words.push_back(t.decode(std::span(&id, 1), true));
  if (c.model->encoder && c.model->decoder) {
    in.source = ids;
    in.ids = {std::max(0, c.decoder_start)};
  } else {
    in.ids = ids;
  }
  return in;
}

std::string name_of_stack(Stack s) { return s == Stack::encoder ? "encoder" : "decoder"; }

void print_heads(const std::vector<HeadStats>& heads, bool color) {
  int most = 0;
  for (const HeadStats& h : heads) most = std::max(most, h.head + 1);
  // One line per layer: for each head how much of its weight lies on the first token.
  print("Weight on the first token, head by head (darker: less; a bright head parks its attention there: a sink)\n");
  for (std::size_t i = 0; i < heads.size();) {
    std::string line = concat("  ", padded(concat(name_of_stack(heads[i].stack), " ", heads[i].layer), 12));
    double sum = 0, sinks = 0, entropy = 0, n = 0;
    const HeadStats& first = heads[i];
    for (; i < heads.size() && heads[i].layer == first.layer && heads[i].stack == first.stack; ++i) {
      line += cell(heads[i].first, color);
      sum += heads[i].first, entropy += heads[i].entropy, sinks += heads[i].first > 0.3, n += 1;
    }
    for (int k = static_cast<int>(n); k < most; ++k) line += "  ";
    print(concat(line, "  mean ", fixed(sum / n, 2), "  sinks ", fixed(sinks, 0), " of ", fixed(n, 0), "  entropy ", fixed(entropy / n, 2),
                 "\n"));
  }
}

int run(Args& args) {
  const CommonArgs common = common_args(args);
  const std::optional<Dim> layer = args.number("layer", 0, 100000), head = args.number("head", 0, 100000);
  const std::optional<std::string> out = args.value("out");
  const bool force = args.flag("force");
  const std::vector<std::string> words = args.operands(2, 3, "words: heads or attention, a model, and a text");
  if (words[0] != "heads" && words[0] != "attention") fail_usage("'", words[0], "' is not looked at; known: heads, attention");
  if (out) check_picture_name(*out, true);
  std::string text = words.size() > 2 ? words[2] : kDefaultText;
  if (text == "-") text = read_stdin(std::size_t{64} << 20);
  const OpenModel m = open_model(words[1], common);
  const Input in = read_input(m.checkpoint, text);
  const std::vector<HeadStats> heads = head_stats(*m.device, *m.checkpoint.model, in.ids, in.source);
  if (heads.empty()) fail(words[1], " has no self-attention");

  if (words[0] == "heads") {
    if (common.json) {
      Json::Array rows;
      for (const HeadStats& h : heads) {
        Json j = Json::Object{};
        j.set("stack", name_of_stack(h.stack));
        j.set("layer", h.layer);
        j.set("head", h.head);
        j.set("first", h.first);
        j.set("self", h.self);
        j.set("previous", h.previous);
        j.set("entropy", h.entropy);
        j.set("distance", h.distance);
        j.set("max_logit", h.max_logit);
        rows.push_back(std::move(j));
      }
      print(Json(rows).dump() + "\n");
      return 0;
    }
    print_heads(heads, color_on_stdout());
    return 0;
  }
  // The head that was asked for, or the one with the strongest sink.
  const HeadStats* chosen = nullptr;
  for (const HeadStats& h : heads)
    if ((!layer || h.layer == *layer) && (!head || h.head == *head) && (!chosen || h.first > chosen->first)) chosen = &h;
  if (!chosen) fail_usage("there is no layer ", layer.value_or(0), " with a head ", head.value_or(0), "; `rapt inspect heads` lists them");
  const std::vector<double> map = head_map(*m.device, *m.checkpoint.model, in.ids, chosen->stack, chosen->layer, chosen->head, in.source);
  HeatMap picture{
      .title = concat(name_of_stack(chosen->stack), " layer ", chosen->layer, ", head ", chosen->head, ": first token ",
                      fixed(chosen->first, 2), ", itself ", fixed(chosen->self, 2), ", the one before ", fixed(chosen->previous, 2)),
      .rows = in.words,
      .columns = in.words,
      .values = map,
      .top = 1};
  if (out) {
    write_picture(picture, *out, force);
    return 0;
  }
  print(heat_text(picture, color_on_stdout()));
  return 0;
}

}  // namespace

extern const Verb kInspect;
const Verb kInspect = {
    "inspect", "what the attention of a model does on a text",
    "Usage: rapt inspect heads MODEL [TEXT]          every head: how much weight lies on the first token, entropy\n"
    "       rapt inspect attention MODEL [TEXT]      one head's map: which token looks at which\n"
    "\n"
    "TEXT may be - for standard input; without one a sentence of ours is taken. The numbers come from the fused kernel itself.\n"
    "\n"
    "  --layer N --head N   the head to draw (the one with the most weight on the first token)\n"
    "  --out FILE           the map as .svg, .png or .txt (--force replaces a file)\n"
    "  --json               all figures of every head\n"
    "  -t, --threads N      threads\n"
    "\n"
    "Examples:\n"
    "  rapt inspect heads SmolLM2-135M-Instruct.Q4_1.gguf\n"
    "  rapt inspect attention gemma-3-270m-q4_k_m.gguf \"To be, or not to be\" --layer 5 --head 1\n",
    run};

}  // namespace rapt::cli
