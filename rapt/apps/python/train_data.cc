// SPDX-License-Identifier: Apache-2.0
// Training data from Python: a function of the number of a batch, called with the GIL from whatever thread a
// step computes on. What it raises ends the step, which leaves no trace, and arrives unchanged.
#include "rapt/apps/python/train.h"
#include "rapt/use/data.h"

namespace rapt::python {
namespace {

std::vector<std::int32_t> ints(const nb::handle& x) {
  if (x.is_none()) return {};
  const auto a = nb::cast<Ints>(x);
  return {a.data(), a.data() + a.shape(0)};
}
std::vector<Dim> lengths_of(const nb::handle& x) {
  const std::vector<std::int32_t> a = ints(x);
  return {a.begin(), a.end()};
}

DataPtr make_data(const std::string& objective, Dim vocab, Dim classes, const std::string& identity,
                  nb::object fetch, Dim held_out, const std::string& tokenizer,
                  const std::vector<std::string>& class_names) {
  OwnDataOptions o{.vocab = vocab,
                   .classes = classes,
                   .identity = identity,
                   .batch = {},
                   .held_out = held_out,
                   .tokenizer = tokenizer,
                   .class_names = class_names};
  constexpr auto names = names_of(Objective{});
  const auto found = std::find(names.begin(), names.end(), objective);
  if (found == names.end())
    fail_name("data: objective '", objective, "' is none of causal, masked, translation, classification");
  o.objective = static_cast<Objective>(found - names.begin());
  const auto get = [fetch = held(std::move(fetch))](bool held_out_part, std::uint64_t number) {
    const InPython in;
    const nb::tuple got = nb::cast<nb::tuple>(call_python(*fetch, nb::make_tuple(held_out_part, number)));
    return own_batch(got[0], got[1], got[2], got[3], got[4]);
  };
  o.batch = [get](std::uint64_t number) { return get(false, number); };
  o.held_out_batch = [get](Dim number) { return get(true, static_cast<std::uint64_t>(number)); };
  const OutOfPython out(on_main_thread());
  return own_data(std::move(o));
}

}  // namespace

OwnBatch own_batch(const nb::handle& tokens, const nb::handle& lengths, const nb::handle& targets,
                   const nb::handle& source, const nb::handle& source_lengths) {
  return {.tokens = ints(tokens),
          .lengths = lengths_of(lengths),
          .targets = ints(targets),
          .source = ints(source),
          .source_lengths = lengths_of(source_lengths)};
}

void add_data(nb::module_& m) {
  nb::class_<TrainData>(m, "TrainData")
      .def_prop_ro("about", &TrainData::about)
      .def_prop_ro("held_out", &TrainData::held_out)
      .def_prop_ro("vocab", [](const TrainData& d) { return d.vocab; })
      .def_prop_ro("objective", [](const TrainData& d) { return name_of(d.objective); });
  m.def("own_data", &make_data);
}

}  // namespace rapt::python
