// SPDX-License-Identifier: Apache-2.0
// The axes of all grids stand together under "shapes".
#include "rapt/report/facts.h"

namespace rapt {

void name_axes(Document& d, const char* key, std::initializer_list<const char*> axes) {
  Json shapes = d.facts.find("shapes") ? *d.facts.find("shapes") : Json(Json::Object{});
  Json::Array names;
  for (const char* axis : axes) names.emplace_back(axis);
  shapes.set(key, std::move(names));
  d.facts.set("shapes", std::move(shapes));
}

}  // namespace rapt
