// SPDX-License-Identifier: Apache-2.0
// What the ranks of a job decide together: what one of them alone can know (its clock, a signal, what lies in
// a folder) is told to all, so that all do the same. Every call is one of all ranks.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "rapt/comm/comm.h"

namespace rapt {

// What each rank says, by rank.
std::vector<bool> all_say(Comm& comm, bool mine);
std::vector<std::string> all_say(Comm& comm, const std::string& mine);
// Whether any rank says so.
bool any_rank(Comm& comm, bool mine);
// What rank 0 says; the others' values are not looked at.
bool rank_0_says(Comm& comm, bool mine);
std::string rank_0_says(Comm& comm, const std::string& mine);
// f on rank 0 alone, its answer on every rank. Where it throws an Error, every rank throws one that says the
// same.
std::string on_rank_0(Comm& comm, const std::function<std::string()>& f);

}  // namespace rapt
