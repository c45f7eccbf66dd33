// SPDX-License-Identifier: Apache-2.0
// --stack.
#include "rapt/apps/cli/inspect_tools.h"

namespace rapt::cli {

std::optional<Stack> stack_arg(Args& args) {
  const std::optional<std::string> name = args.value("stack");
  if (!name) return {};
  for (Stack stack : {Stack::encoder, Stack::decoder})
    if (*name == stack_name(stack)) return stack;
  fail_usage("--stack is encoder or decoder, not '", *name, "'");
}

}  // namespace rapt::cli
