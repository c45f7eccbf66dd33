// SPDX-License-Identifier: Apache-2.0
// What the workshop computes, one function a route; each stands in the file that is named.
#pragma once
#include <string>
#include <string_view>

#include "rapt/apps/server/workshop.h"

namespace rapt::server {

// workshop_lab.cc. The guide and the experiments in both languages, as JSON:
//   /lab                     topics with their questions, and the experiments
//   /lab/questions/{id}      id "norms.place": the picture and the numbers beside a question
//   /lab/experiments/{name}  what was measured for the guide, seed by seed
// Throws ApiError 404 with the nearest name.
std::string lab_reply(std::string_view pattern, std::string_view name);
// POST /lab/run: {"id": …} of the run.
std::string run_experiment(Workshop& workshop, const Json& body, std::size_t key);

}  // namespace rapt::server
