// SPDX-License-Identifier: Apache-2.0
// Steps by hand: weights as rows of f32 and back, gradients of a batch, new models.
#include "rapt/apps/python/train.h"
#include "rapt/base/text.h"
#include "rapt/recipe/recipe_set.h"

namespace rapt::python {
namespace {

Model& weights_of(const ModelPtr& m) { return *m->checkpoint->model; }

// Vectors have one dimension, as in a model's folder.
std::vector<Dim> shape_of(const Weight& w, bool vector) {
  return vector ? std::vector<Dim>{w.size()} : std::vector<Dim>{w.rows, w.cols};
}
std::vector<Dim> shape_of(const Model& model, const Weight& w) {
  return shape_of(w, weight_shapes(model.recipe)[static_cast<std::size_t>(w.index)].vector);
}

std::span<const float> numbers(const Model& model, const Weight& w, const Floats& a) {
  const std::vector<Dim> shape = shape_of(model, w);
  bool same = a.ndim() == shape.size();
  for (std::size_t i = 0; same && i < shape.size(); ++i) same = static_cast<Dim>(a.shape(i)) == shape[i];
  if (!same) {
    std::vector<std::string> got, wanted;
    for (std::size_t i = 0; i < a.ndim(); ++i) got.push_back(std::to_string(a.shape(i)));
    for (const Dim size : shape) wanted.push_back(std::to_string(size));
    fail_usage("weight ", w.name, ": got an array of shape (", join(got), "), its own is (", join(wanted),
               ")");
  }
  return {a.data(), a.size()};
}

nb::object array_for(const Model& model, const Weight& w, std::vector<float>&& values) {
  const std::vector<Dim> shape = shape_of(model, w);
  return array_of(std::move(values), shape);
}

// [(name, shape, format)] in the model's order.
nb::list list_weights(const ModelPtr& m) {
  nb::list out;
  const Model& model = weights_of(m);
  const std::vector<WeightShape> shapes = weight_shapes(model.recipe);
  for (const Weight& w : model.weights)
    out.append(nb::make_tuple(
        w.name, nb::tuple(nb::cast(shape_of(w, shapes[static_cast<std::size_t>(w.index)].vector))),
        std::string(name_of(w.format))));
  return out;
}

nb::object get_weight(const ModelPtr& m, const std::string& name) {
  const Weight& w = find_weight(weights_of(m), name);
  std::vector<float> values;
  {
    const OutOfPython out(on_main_thread());
    const Lease lease(m->on().team());  // nobody changes it meanwhile
    values = weight_numbers(w);
  }
  return array_for(weights_of(m), w, std::move(values));
}

void put_weight(const ModelPtr& m, const std::string& name, const Floats& a) {
  Model& model = weights_of(m);
  const std::span<const float> values = numbers(model, find_weight(model, name), a);
  const OutOfPython out(on_main_thread());
  set_weight(m->on(), model, name, values);
}

nb::bytes raw_weight(const ModelPtr& m, const std::string& name) {
  const Weight& w = find_weight(weights_of(m), name);
  return nb::bytes(w.data.get(), w.bytes());
}

std::shared_ptr<BatchGradients> no_gradients(const ModelPtr& m) {
  return std::make_shared<BatchGradients>(m);
}

std::shared_ptr<BatchGradients> gradients_of(const ModelPtr& m, nb::handle tokens, nb::handle lengths,
                                             nb::handle targets, nb::handle source, nb::handle source_lengths,
                                             double smoothing, std::optional<std::uint64_t> number,
                                             std::uint64_t seed) {
  OwnBatch own = own_batch(tokens, lengths, targets, source, source_lengths);
  const auto out = no_gradients(m);
  const Model& model = weights_of(m);
  for (const Weight& w : model.weights)
    if (is_parameter(w) && w.format != model.real)
      fail_usage("gradients: weight ", w.name, " is stored as ", name_of(w.format),
                 "; open the model with exact numbers (exact=True)");
  const Recipe& r = model.recipe;
  const bool classes = r.head.kind == HeadRecipe::Kind::classes;
  OwnDataOptions o{.objective = classes                  ? Objective::classification
                                : r.encoder && r.decoder ? Objective::translation
                                : r.decoder              ? Objective::causal
                                                         : Objective::masked,
                   .vocab = r.vocab,
                   .classes = r.head.classes,
                   .identity = {},
                   .batch = {}};
  std::atomic<bool> cancel{false};
  without_gil(cancel, [&] {
    const TrainBatch batch = as_train_batch(std::move(own), o, number.value_or(0), "gradients");
    std::optional<RandomState> random;
    if (number) random = RandomState{seed, *number};
    const Lease lease(m->on().team());
    out->loss = batch_gradients(m->on(), model, batch, out->values, smoothing, random);
  });
  return out;
}

nb::object get_gradient(const BatchGradients& g, const std::string& name) {
  const Model& model = weights_of(g.model);
  const Weight& w = find_weight(model, name);
  std::vector<float> values;
  {
    const OutOfPython out(on_main_thread());
    values = gradient_numbers(w, g.values);
  }
  if (values.empty() && w.size() > 0) return nb::none();
  return array_for(model, w, std::move(values));
}

void put_gradient(BatchGradients& g, const std::string& name, const Floats& a) {
  const Model& model = weights_of(g.model);
  const Weight& w = find_weight(model, name);
  const std::span<const float> values = numbers(model, w, a);
  const OutOfPython out(on_main_thread());
  set_gradient(w, g.values, values);
}

std::vector<std::string> gradient_names(const BatchGradients& g) {
  std::vector<std::string> out;
  for (const Weight& w : weights_of(g.model).weights)
    if (g.values.find(w)) out.push_back(w.name);
  return out;
}

// A model of a recipe (JSON) with random weights, as `rapt train` begins.
ModelPtr make_model(const std::string& recipe, std::uint64_t seed, const DevicePtr& device) {
  auto state = std::make_shared<api::ModelState>();
  state->device = device ? device : shared_device();
  const Recipe r = resolve(parse_recipe(recipe));
  without_gil([&] {
    auto checkpoint = std::make_shared<Checkpoint>();
    checkpoint->model = std::make_unique<Model>(r, state->on().real);
    init(*checkpoint->model, seed);
    checkpoint->family = "rapt";
    state->checkpoint = std::move(checkpoint);
  });
  state->opened = false;
  return state;
}

}  // namespace

void add_gradients(nb::module_& m) {
  nb::class_<BatchGradients>(m, "BatchGradients")
      .def_ro("loss", &BatchGradients::loss)
      .def("names", &gradient_names)
      .def("get", &get_gradient)
      .def("put", &put_gradient);
  m.def("gradients_of", &gradients_of, "model"_a, "tokens"_a, "lengths"_a, "targets"_a.none(),
        "source"_a.none(), "source_lengths"_a.none(), "smoothing"_a, "number"_a.none(), "seed"_a);
  m.def("no_gradients", &no_gradients);
  m.def("weights", &list_weights);
  m.def("weight", &get_weight);
  m.def("set_weight", &put_weight);
  m.def("raw_weight", &raw_weight);
  m.def("make_model", &make_model, "recipe"_a, "seed"_a, "device"_a.none());
}

}  // namespace rapt::python
