// SPDX-License-Identifier: Apache-2.0
// rapt lab heads MODEL: what heads do, each kind measured against equal weights, and what the model is
// without the strongest of a kind.
#include "rapt/lab/real_heads.h"

#include <algorithm>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/inspect/edits.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

constexpr Dim kWindow = 256;
constexpr std::size_t kKinds = static_cast<std::size_t>(HeadKindName::count);
constexpr const char* kNames[kKinds] = {"sink", "previous", "self", "induction", "local", "uniform", "none"};

// Mean |row - key|, were all that a row sees of equal weight.
double even_distance(const AttentionRecord& record, const AttentionPlace& place) {
  double sum = 0;
  const Dim n = static_cast<Dim>(record.row_ids(place).size());
  for (Dim r = 0; r < n; ++r) {
    const RowSight sight = record.row_sight(place, r);
    double d = 0, keys = 0;
    for (Dim k = 0; k < sight.high; ++k)
      if (sight.sees(k)) d += static_cast<double>(std::abs(r - k)), keys += 1;
    sum += keys > 0 ? d / keys : 0;
  }
  return sum / static_cast<double>(std::max<Dim>(1, n));
}

// The edit that takes a head's result away.
std::string without(const SeenHead& h) {
  return concat("z.", layer_label(h.natural.place.layer, h.natural.place.number), "@h", h.natural.head,
                ":zero");
}
std::string head_name(const SeenHead& h) {
  return concat("L", layer_label(h.natural.place.layer, h.natural.place.number), "H", h.natural.head);
}

}  // namespace

HeadKindName kind_of(const HeadMetrics& natural, double even, const HeadMetrics& twice) {
  using enum HeadKindName;
  const std::string& label = natural.label;
  const auto called = [&](const char* name) { return label.starts_with(name); };
  if (called("uniform")) return uniform;
  // Of two texts: where a text comes a second time there is something to continue.
  const HeadKind& again = head_kinds()[3];
  const bool continues = twice.*again.share >= 0.3 && again.beyond(twice) >= 0.2;
  double best = continues ? again.beyond(twice) : 0;
  HeadKindName kind = continues ? induction : none;
  static constexpr HeadKindName kOthers[] = {sink, previous, self};
  for (std::size_t i = 0; i < 3; ++i) {
    const HeadKind& k = head_kinds()[i];
    if (natural.*k.share >= 0.3 && k.beyond(natural) >= 0.2 && k.beyond(natural) > best)
      best = k.beyond(natural), kind = kOthers[i];
  }
  if (kind == none && natural.distance < 0.25 * even) return local;
  return kind;
}

double strength(HeadKindName kind, const SeenHead& h) {
  switch (kind) {
    case HeadKindName::sink: return head_kinds()[0].beyond(h.natural);
    case HeadKindName::previous: return head_kinds()[1].beyond(h.natural);
    case HeadKindName::self: return head_kinds()[2].beyond(h.natural);
    case HeadKindName::induction: return head_kinds()[3].beyond(h.twice);
    case HeadKindName::local: return 1 - h.natural.distance / h.even_distance;
    case HeadKindName::uniform: return h.natural.entropy;
    default: return 0;
  }
}

std::vector<SeenHead> see_heads(const Lab& lab, const Model& model, const TokenIds& natural,
                                const TokenIds& twice) {
  const RecordOptions own{.keep = [](const AttentionPlace& p) { return !p.cross; }};
  const AttentionRecord record(lab.device, model, natural, {}, own), again(lab.device, model, twice, {}, own);
  const std::vector<HeadMetrics> a = head_metrics(record, 256), b = head_metrics(again, 256);
  std::vector<SeenHead> out;
  double even = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (i == 0 || a[i].place != a[i - 1].place) even = even_distance(record, a[i].place);
    out.push_back({.natural = a[i], .twice = b[i], .even_distance = even, .kind = kind_of(a[i], even, b[i])});
  }
  return out;
}

LabResult real_heads(const Lab& lab, const RealSubject& s) {
  const Checkpoint checkpoint = s.open({});
  const Model& model = predictor(checkpoint, s);
  const std::vector<TokenIds> windows =
      framed_pieces(s, s.prose, kWindow, std::max<Dim>(2, (s.tokens > 0 ? s.tokens : 512) / kWindow));
  // Random tokens, twice: nothing but what stood there before tells what comes.
  TokenIds random, one;
  for (const RealText& t : s.texts) {
    if (t.kind == RealText::Kind::random) random = first_tokens(t.ids, 64);
    if (t.kind == RealText::Kind::repeated) one = framed(s, t.ids);
  }
  const auto half = static_cast<Dim>(random.size());
  random.insert(random.end(), random.begin(), random.begin() + half);
  const TokenIds twice = framed(s, random);
  double done = 0;
  const auto progress = [&](std::string_view what) {
    if (lab.progress) lab.progress(what, done++, 3 + 2 * static_cast<double>(kKinds));
  };
  progress("heads");
  const std::vector<SeenHead> heads = see_heads(lab, model, windows[0], twice);

  // Where one token comes again and again, nearly all keys stand behind an earlier one of its kind.
  progress("one token");
  Dim raw = 0, beyond = 0;
  for (const SeenHead& h : see_heads(lab, model, one, one)) {
    raw += h.twice.induction >= 0.3;
    beyond += h.kind == HeadKindName::induction;
  }

  const std::size_t depth = static_cast<std::size_t>(model.decoder->depth());
  std::vector<std::vector<double>> shares(kKinds, std::vector<double>(depth));
  std::vector<double> of_layer(depth);
  for (const SeenHead& h : heads) {
    const auto l = static_cast<std::size_t>(h.natural.place.layer);
    shares[static_cast<std::size_t>(h.kind)][l] += 1;
    of_layer[l] += 1;
  }
  Chart chart{.title = say("lab.real-heads.c.shares", s.name),
              .x_label = say("lab.layer"),
              .y_label = say("lab.real-heads.c.share"),
              .share = true};
  Table layers{.title = say("lab.real-heads.t.layers"), .columns = {say("lab.layer")}};
  for (const char* name : kNames) layers.columns.push_back(say(concat("lab.real-heads.kind.", name)));
  for (std::size_t l = 0; l < depth; ++l) {
    std::vector<Cell> row = {Cell(static_cast<double>(l), 0)};
    for (std::size_t k = 0; k < kKinds; ++k) row.push_back(Cell(shares[k][l], 0));
    layers.rows.push_back(std::move(row));
  }

  // Without the strongest of a kind.
  const auto losses = [&](const std::vector<std::string>& edits) {
    const std::vector<Edit> parsed = parse_edits(edits);
    const WindowEdits install = [&](std::size_t, Taps& taps) { install_edits(taps, model, parsed); };
    Taps taps;
    install_edits(taps, model, parsed);
    const std::vector<double> again = token_losses(lab.device, model, taps, twice);
    double second = 0;  // of the random tokens when they come again
    for (Dim i = 0; i < half - 1; ++i) second += again[again.size() - 1 - static_cast<std::size_t>(i)];
    return std::pair{mean_loss(lab, model, windows, install), second / static_cast<double>(half - 1)};
  };
  progress("plain");
  const auto [plain, plain_again] = losses({});
  Table kinds{.title = say("lab.real-heads.t.kinds", digits(plain, 3), digits(plain_again, 3)),
              .columns = {say("lab.real-heads.t.kind"), say("lab.real-heads.t.count"),
                          say("lab.real-heads.t.share"), say("lab.real-heads.t.strongest"),
                          say("lab.real-heads.t.one"), say("lab.real-heads.t.one_again"),
                          say("lab.real-heads.t.four"), say("lab.real-heads.t.four_again")}};
  double count[kKinds] = {}, added[kKinds] = {}, added_again[kKinds] = {};
  for (std::size_t k = 0; k < kKinds; ++k) {
    const auto kind = static_cast<HeadKindName>(k);
    std::vector<const SeenHead*> of;
    for (const SeenHead& h : heads)
      if (h.kind == kind) of.push_back(&h);
    std::sort(of.begin(), of.end(), [&](const SeenHead* a, const SeenHead* b) {
      const double x = strength(kind, *a), y = strength(kind, *b);
      return x != y ? x > y : a < b;  // the first of equals first
    });
    count[k] = static_cast<double>(of.size());
    const double share = count[k] / static_cast<double>(heads.size());
    for (std::size_t l = 0; l < depth; ++l) shares[k][l] = of_layer[l] > 0 ? shares[k][l] / of_layer[l] : NAN;
    if (kind != HeadKindName::none && !of.empty())
      chart.curves.push_back(by_layer(say(concat("lab.real-heads.kind.", kNames[k])), shares[k]));
    std::vector<Cell> row = {say(concat("lab.real-heads.kind.", kNames[k])), Cell(count[k], 0),
                             Cell(100 * share, 1)};
    std::string names;
    std::vector<std::string> edits;
    for (std::size_t i = 0; i < std::min<std::size_t>(4, of.size()); ++i) {
      names += concat(i ? ", " : "", head_name(*of[i]));
      edits.push_back(without(*of[i]));
    }
    row.push_back(names.empty() ? "–" : names);
    if (of.empty()) {
      row.insert(row.end(), 4, Cell(NAN));
    } else {
      progress(kNames[k]);
      const auto [one_loss, one_again] = losses({edits[0]});
      progress(kNames[k]);
      const auto [four_loss, four_again] = losses(edits);
      added[k] = four_loss - plain, added_again[k] = four_again - plain_again;
      for (double x : {one_loss - plain, one_again - plain_again, added[k], added_again[k]})
        row.push_back(Cell(x, 4));
    }
    kinds.rows.push_back(std::move(row));
  }

  enum { k_sink, k_previous, k_self, k_induction, k_local, k_uniform, k_none };
  LabResult out;
  const double all = static_cast<double>(heads.size());
  const auto percent = [&](std::size_t k) { return 100 * count[k] / all; };
  out.findings = {
      above(say("lab.real-heads.f.sink"), percent(k_sink), 20, "%", say("lab.real-heads.p.sink"), false),
      above(say("lab.real-heads.f.induction"), count[k_induction], 0, "", "", false),
      below(say("lab.real-heads.f.repeated", raw), static_cast<double>(beyond), 1, "",
            say("lab.real-heads.p.equal")),
      above(say("lab.real-heads.f.again"), added_again[k_induction], 0.05, "nats", "", false),
      below(say("lab.real-heads.f.sink_cost"), added[k_sink], 0.1, "nats", "", false),
  };
  std::vector<Text> v;
  v.push_back(say("lab.real-heads.v.kinds", static_cast<Dim>(heads.size()), static_cast<Dim>(count[k_sink]),
                  static_cast<Dim>(count[k_previous]), static_cast<Dim>(count[k_self]),
                  static_cast<Dim>(count[k_induction]), static_cast<Dim>(count[k_local]),
                  static_cast<Dim>(count[k_uniform]), static_cast<Dim>(count[k_none])));
  v.push_back(say("lab.real-heads.v.equal", raw, beyond));
  if (count[k_induction] > 0)
    v.push_back(say(
        added_again[k_induction] > 0.05 ? "lab.real-heads.v.induction" : "lab.real-heads.v.induction_spare",
        digits(plain_again, 2), digits(plain_again + added_again[k_induction], 2),
        digits(added[k_induction], 3)));
  else v.push_back(say("lab.real-heads.v.no_induction", digits(plain_again, 2), digits(plain, 2)));
  if (count[k_sink] > 0)
    v.push_back(say(added[k_sink] < 0.05 ? "lab.real-heads.v.sink_idle" : "lab.real-heads.v.sink_needed",
                    digits(added[k_sink], 3)));
  std::size_t dearest = k_none;
  for (std::size_t k = 0; k < kKinds; ++k)
    if (added[k] > added[dearest]) dearest = k;
  v.push_back(say("lab.real-heads.v.dearest", say(concat("lab.real-heads.kind.", kNames[dearest])),
                  digits(added[dearest], 3)));
  out.verdict = sentences(std::move(v));
  out.document.parts = {model_words(s, model), chart, kinds, layers, Words{say("lab.real-heads.how")}};
  return out;
}

}  // namespace rapt
