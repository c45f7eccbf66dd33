// SPDX-License-Identifier: Apache-2.0
#include "rapt/apps/python/binding.h"

namespace rapt::python {

void add_recipe(nb::module_&) {}

}  // namespace rapt::python
