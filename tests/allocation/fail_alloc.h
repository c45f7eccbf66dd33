// SPDX-License-Identifier: Apache-2.0
// One allocation of the process fails: malloc and its family are replaced in the program that links
// fail_alloc.cc (new comes to malloc).
#pragma once

namespace rapt::test {

void fail_allocation(long n);   // from now on the n-th one fails, once, on whichever thread; 0: none does
long allocations();             // since then

}  // namespace rapt::test
