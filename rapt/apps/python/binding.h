// SPDX-License-Identifier: Apache-2.0
// What the files of the Python module share: nanobind with its conversions, what each adds to the module.
// Names, defaults and texts for people stand in python/rapt; here are functions with positional arguments.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "rapt/base/error.h"

namespace rapt::python {

namespace nb = nanobind;
using namespace nb::literals;

void add_model(nb::module_& m);      // model.cc: files, tokens, passes over texts
void add_generate(nb::module_& m);   // generate.cc: answers, from one engine for each model
void add_tokenizer(nb::module_& m);  // tokenizer.cc
void add_serve(nb::module_& m);      // serve.cc: the HTTP server
void add_inspect(nb::module_& m);    // inspect.cc
void add_recipe(nb::module_& m);     // recipe.cc
void add_train(nb::module_& m);      // train.cc
void add_lab(nb::module_& m);        // lab.cc

}  // namespace rapt::python
