// SPDX-License-Identifier: Apache-2.0
// What the process may still do once models are open and ports are bound: files are closed to it (Landlock)
// and so are system calls that a server has no use for (seccomp). Where the kernel has neither, nothing
// happens.
#pragma once
#include <string>
#include <vector>

namespace rapt::server {

struct Sandbox {
  bool files = false, calls = false;  // what took effect
};
// For all threads that the calling thread starts from now on, and for itself. `readable`: files and folders
// that may still be read (certificates).
// … and `writable`: a folder where files may be made, written and removed; "": none.
Sandbox enter_sandbox(const std::vector<std::string>& readable, const std::string& writable = "");

}  // namespace rapt::server
