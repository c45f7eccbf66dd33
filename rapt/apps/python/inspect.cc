// SPDX-License-Identifier: Apache-2.0
// Looking inside one pass: points by name, tensors of them, functions at them, edits that a handle carries.
#include "rapt/apps/python/inspect.h"

#include <nanobind/stl/variant.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "rapt/apps/python/hooks.h"
#include "rapt/base/text.h"
#include "rapt/inspect/capture.h"
#include "rapt/use/translate.h"

namespace rapt::python {
namespace {

using TextOrIds = std::variant<std::string, TokenIds>;

// (ids, source): what the model reads of a text, framed as its tokenizer says, or of ids as they are. An
// encoder-decoder reads `text` with its encoder and `target` (or what it would answer) with its decoder.
nb::tuple inspect_ids(const ModelPtr& m, const TextOrIds& text, const std::optional<TextOrIds>& target) {
  const Checkpoint& c = *m->checkpoint;
  const auto all_of = [&](const TextOrIds& x) -> TokenIds {
    if (const auto* given = std::get_if<TokenIds>(&x)) return *given;
    const Tokenizer& t = tokenizer_of(c);
    return t.frame(t.encode(std::get<std::string>(x)));
  };
  TokenIds ids = all_of(text), source;
  const bool both = c.model->encoder && c.model->decoder;
  if (target && !both) fail_usage("target: ", c.path, " has no encoder; its text is all it reads");
  if (!both) return nb::make_tuple(std::move(ids), std::move(source));
  source = std::move(ids);
  if (target && std::holds_alternative<TokenIds>(*target)) {
    ids = std::get<TokenIds>(*target);
  } else {
    std::optional<std::string> words;
    if (target) words = std::get<std::string>(*target);
    ids = without_gil([&] { return decoder_ids(m->on(), c, source, words); });
  }
  return nb::make_tuple(std::move(ids), std::move(source));
}

// ------------------------------------------------------------------------------------------------- points

nb::list points(const ModelPtr& m) {
  nb::list out;
  const std::vector<PointLine> lines = list_points(m->net());
  const std::vector<std::vector<std::string>> others = other_names(m->net(), lines);
  for (std::size_t i = 0; i < lines.size(); ++i)
    out.append(nb::make_tuple(lines[i].name, lines[i].lens, others[i], shape_text(lines[i].example),
                              lines[i].first < 0 ? 0 : lines[i].layers, lines[i].example.fixed.empty()));
  return out;
}

// Our names of all that a name stands for.
std::vector<std::string> point_names(const ModelPtr& m, const std::string& name) {
  std::vector<std::string> out;
  for (Point& p : find_points(m->net(), name)) out.push_back(std::move(p.name));
  return out;
}

// Points of some names, each name once; a name that others cover already adds nothing.
std::vector<Asked> asked_points(const Model& model, const std::vector<std::string>& names) {
  std::vector<Asked> out;
  for (const std::string& name : names)
    for (Asked& a : ask_points(model, {&name, 1}))
      if (std::none_of(out.begin(), out.end(), [&](const Asked& b) { return a.name == b.name; }))
        out.push_back(std::move(a));
  return out;
}

nb::object array_of_captured(const std::shared_ptr<const void>& owner, const Captured& t) {
  return array_of(owner, t.values.data(), Sizes(t.shape.begin(), t.shape.end()));
}

// (what the model gives, [(name as asked, our name, array)])
nb::tuple capture_points(const ModelPtr& m, const std::vector<std::string>& names, const TokenIds& ids,
                         const TokenIds& source, double limit) {
  const std::vector<Asked> asked = asked_points(m->net(), names);
  std::vector<Asked> once;  // two names of one point: one array
  std::vector<std::size_t> which;
  for (const Asked& a : asked) {
    const auto same =
        std::find_if(once.begin(), once.end(), [&](const Asked& b) { return a.point.name == b.point.name; });
    which.push_back(static_cast<std::size_t>(same - once.begin()));
    if (same == once.end()) once.push_back(a);
  }
  const auto got = std::make_shared<const Capture>(without_gil([&] {
    Edited edited(*m, Passes::one);
    Capture made = capture(
        m->on(), m->net(), once, ids, source,
        {.most_bytes = limit, .taps = &edited.taps(), .adapters = m->checkpoint->adapters, .result = true});
    edited.check();
    return made;
  }));
  nb::list tensors;
  std::vector<nb::object> arrays;
  for (const Captured& t : got->tensors) arrays.push_back(array_of_captured(got, t));
  for (std::size_t i = 0; i < asked.size(); ++i)
    tensors.append(nb::make_tuple(asked[i].name, asked[i].point.name, arrays[which[i]]));
  return nb::make_tuple(array_of_captured(got, got->result), std::move(tensors));
}

// -------------------------------------------------------------------------------------------------- hooks

nb::object run_hooks(const ModelPtr& m, const TokenIds& ids, const TokenIds& source,
                     const NamedFunctions& edits, const NamedFunctions& watch, double limit) {
  const Model& model = m->net();
  const Functions change = functions_of(model, edits), see = functions_of(model, watch);
  const Dim T = static_cast<Dim>(ids.size()), S = static_cast<Dim>(source.size());
  for (const Asked& a : see.asked) {
    double bytes = 4;
    for (const Dim n : point_shape(model, a.point, T, S)) bytes *= static_cast<double>(n);
    if (bytes > limit)
      fail(a.name, " takes ", byte_count(bytes), " for ", T, " tokens, more than the ", byte_count(limit),
           " allowed; take a shorter text, or raise the limit");
  }
  Captured result = without_gil([&] {
    if (ids.empty()) fail("the text has no tokens");
    Edited edited(*m, Passes::one);
    Taps& taps = edited.taps();
    const auto came = install(taps, model, change);
    watch_points(taps, model, see.asked, T, S, [&](std::size_t i, Captured&& value) {
      const auto owner = std::make_shared<const Captured>(std::move(value));
      const Asked& a = see.asked[i];
      const Dim rows =
          owner->shape.empty()
              ? 0
              : owner->shape[a.point.kind == PointKind::weights || a.point.kind == PointKind::scores ? 1 : 0];
      end_if_ending();
      const InPython in;
      call_hook(see.calls[i], array_of_captured(owner, *owner), a, a.point.stack, rows_before(model, a.point),
                rows);
    });
    Run run(m->on());
    run.taps = &taps;
    const std::vector<AdapterUse>& adapters = m->checkpoint->adapters;
    const Batch from{.tokens = source, .sequences = {{.first = 0, .count = S, .adapters = adapters}}};
    Batch batch = batch_of(model, ids);
    for (Sequence& s : batch.sequences) s.adapters = adapters;
    const Tensor out = forward(run, model, batch, S > 0 ? &from : nullptr);
    edited.check();
    came();
    Captured all{.name = "result", .shape = {out.size.begin(), out.size.begin() + out.rank}, .values = {}};
    with_values(out, [&](auto values) { all.values.assign(values.begin(), values.end()); });
    return all;
  });
  const auto owner = std::make_shared<const Captured>(std::move(result));
  return array_of_captured(owner, *owner);
}

// -------------------------------------------------------------------------------------------------- edits

// Another handle of the same weights, whose passes have these edits after those that it has already. An
// edit's value stands in its text, or beside it.
ModelPtr edited(const ModelPtr& m, const std::vector<std::pair<std::string, nb::object>>& edits) {
  std::vector<Edit> list = m->edits ? m->edits->list : std::vector<Edit>{};
  for (const auto& [text, value] : edits) {
    if (value.is_none()) {
      list.push_back(text.starts_with('{') ? read_edit(parse_json(text, "edit")) : parse_edit(text));
      continue;
    }
    Floats array;
    if (!nb::try_cast(value, array))
      throw nb::type_error(concat("edit '", text, "': its value is ",
                                  nb::cast<std::string>(nb::repr(value.type())), ", no array of numbers")
                               .c_str());
    std::vector<Dim> shape;
    for (std::size_t i = 0; i < array.ndim(); ++i) shape.push_back(static_cast<Dim>(array.shape(i)));
    list.push_back(parse_edit(text, {array.data(), array.data() + array.size()}, std::move(shape)));
  }
  auto out = std::make_shared<api::ModelState>(*m);
  out->edits = list.empty() ? nullptr : std::make_shared<const EditSet>(std::move(list));
  const Edited tried(*out, Passes::one);  // fails now where an edit cannot be meant
  return out;
}

std::vector<std::string> edits_of(const ModelPtr& m) {
  std::vector<std::string> out;
  if (m->edits)
    for (const Edit& e : m->edits->list) out.push_back(e.text);
  return out;
}

}  // namespace

void add_inspect(nb::module_& m) {
  m.def("inspect_ids", &inspect_ids, "model"_a, "text"_a, "target"_a.none());
  m.def("points", &points, "model"_a);
  m.def("point_names", &point_names, "model"_a, "name"_a);
  m.def("capture", &capture_points, "model"_a, "names"_a, "ids"_a, "source"_a, "limit"_a);
  m.def("run_hooks", &run_hooks, "model"_a, "ids"_a, "source"_a, "edits"_a, "watch"_a, "limit"_a);
  m.def("edited", &edited, "model"_a, "edits"_a);
  m.def("edits_of", &edits_of, "model"_a);
  add_inspect_attention(m);
  add_inspect_views(m);
  add_inspect_attribution(m);
}

}  // namespace rapt::python
