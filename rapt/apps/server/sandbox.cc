// SPDX-License-Identifier: Apache-2.0
// Landlock of any version: every right of files that the running kernel knows is taken, and reading given
// back for a few places. seccomp: a list of what is refused, with EPERM; a list of what is allowed would
// break with the next libc, whose calls nobody here knows.
#include "rapt/apps/server/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace rapt::server {
namespace {

// linux/landlock.h, in the words of its documentation: older headers do not have it all.
constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;
struct RulesetAttributes {
  std::uint64_t files;
};
struct __attribute__((packed)) PathRule {
  std::uint64_t allowed;
  std::int32_t folder;
};
constexpr std::uint64_t kExecute = 1, kReadFile = 1 << 2, kReadFolder = 1 << 3;

bool restrict_files(const std::vector<std::string>& readable, const std::string& writable) {
  const long version = syscall(kCreateRuleset, nullptr, 0, 1U);
  if (version < 1) return false;
  // Rights 0 to 12 came with the first version, linking across folders with the second, truncating with the
  // third, devices with the fifth.
  std::uint64_t rights = (std::uint64_t{1} << 13) - 1;
  if (version >= 2) rights |= std::uint64_t{1} << 13;
  if (version >= 3) rights |= std::uint64_t{1} << 14;
  if (version >= 5) rights |= std::uint64_t{1} << 15;
  const RulesetAttributes attributes{rights};
  const int rules = static_cast<int>(syscall(kCreateRuleset, &attributes, sizeof attributes, 0U));
  if (rules < 0) return false;
  // /dev/null: http/loop.cc keeps one open in reserve.
  std::vector<std::string> places = {
      "/proc", "/sys/fs/cgroup", "/etc/localtime", "/usr/share/zoneinfo", "/dev/urandom", "/dev/null"};
  places.insert(places.end(), readable.begin(), readable.end());
  for (const std::string& place : places) {
    const int folder = open(place.c_str(), O_PATH | O_CLOEXEC);
    if (folder < 0) continue;
    PathRule rule{kReadFile | kReadFolder, folder};
    if (syscall(kAddRule, rules, 1, &rule, 0U) != 0) {
      rule.allowed = kReadFile;  // of a file
      syscall(kAddRule, rules, 1, &rule, 0U);
    }
    close(folder);
  }
  if (!writable.empty()) {
    // Everything but to run what lies there: files and folders made, written, renamed within, removed.
    const int folder = open(writable.c_str(), O_PATH | O_CLOEXEC);
    const PathRule rule{rights & ~kExecute, folder};
    if (folder >= 0) {
      syscall(kAddRule, rules, 1, &rule, 0U);
      close(folder);
    }
  }
  static_assert((kExecute & (kReadFile | kReadFolder)) == 0);
  const bool done = syscall(kRestrictSelf, rules, 0U) == 0;
  close(rules);
  return done;
}

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kArchitecture = 0;
#endif

// Programs, other processes, the kernel itself, new sockets: whoever got in would want them next.
constexpr int kRefused[] = {__NR_execve,
                            __NR_execveat,
                            __NR_ptrace,
                            __NR_process_vm_readv,
                            __NR_process_vm_writev,
                            __NR_connect,
                            __NR_bind,
                            __NR_socket,
                            __NR_mount,
                            __NR_umount2,
                            __NR_pivot_root,
                            __NR_chroot,
                            __NR_setns,
                            __NR_unshare,
                            __NR_bpf,
                            __NR_perf_event_open,
                            __NR_kexec_load,
                            __NR_init_module,
                            __NR_finit_module,
                            __NR_delete_module,
                            __NR_keyctl,
                            __NR_add_key,
                            __NR_request_key,
                            __NR_userfaultfd,
                            __NR_open_by_handle_at,
                            __NR_name_to_handle_at,
                            __NR_swapon,
                            __NR_reboot,
                            __NR_setuid,
                            __NR_setgid,
                            __NR_setreuid,
                            __NR_setresuid,
                            __NR_settimeofday,
                            __NR_clock_settime,
                            __NR_acct,
                            __NR_quotactl};

bool restrict_calls() {
  if (kArchitecture == 0) return false;
  std::vector<sock_filter> program;
  const auto add = [&](std::uint16_t code, std::uint32_t k, std::uint8_t yes = 0, std::uint8_t no = 0) {
    program.push_back({code, yes, no, k});
  };
  add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
  add(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0);
  add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);  // calls of another architecture
  add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
#if defined(__x86_64__)
  add(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);  // the same calls under other numbers (x32)
  add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
#endif
  for (const int call : kRefused) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1);
    add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  }
  add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

}  // namespace

Sandbox enter_sandbox(const std::vector<std::string>& readable, const std::string& writable) {
  Sandbox done;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return done;
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // no core files: they would hold prompts
  done.files = restrict_files(readable, writable);
  done.calls = restrict_calls();
  return done;
}

}  // namespace rapt::server
