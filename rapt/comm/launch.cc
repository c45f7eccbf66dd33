// SPDX-License-Identifier: Apache-2.0
// Each launcher's variables are a row of a table; what is particular to Slurm and to sockets stands below it.
#include "rapt/comm/launch.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "rapt/base/error.h"

namespace rapt {
namespace {

struct Names {
  Launcher by;
  const char *rank, *ranks, *local_rank, *local_ranks;
};
constexpr Names kOpenMpi = {Launcher::openmpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kMpich = {Launcher::mpich, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Names kTorchrun = {Launcher::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kSlurm = {Launcher::slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr};
constexpr int kMostRanks = 1'000'000;

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  std::optional<std::string> text(const char* name) const {
    const char* value = name ? environment_(name) : nullptr;
    if (!value || !*value) return std::nullopt;
    return value;
  }
  bool has(const char* name) const { return text(name).has_value(); }

  std::optional<std::int64_t> number(const char* name, std::int64_t least, std::int64_t most) const {
    const std::optional<std::string> value = text(name);
    if (!value) return std::nullopt;
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), n);
    if (error != std::errc{} || end != value->data() + value->size() || n < least || n > most)
      fail_usage("ranks: ", name, "=", *value, " in the environment is no whole number from ", least, " to ",
                 most, "; correct it, or unset it where this is no rank of several");
    return n;
  }

 private:
  const Environment& environment_;
};

[[noreturn]] void fail_half(const char* there, const char* missing, std::string_view more = "") {
  fail_usage("ranks: ", there, " is set in the environment and ", missing,
             " is not: half of what a launcher says. Set both, or unset ", there,
             " where this is no rank of several", more);
}

// A rank and its neighbours; nothing where none of the two names is set.
std::optional<Launch> read(const Reader& env, const Names& n) {
  if (!env.has(n.rank) && !env.has(n.ranks)) return std::nullopt;
  if (!env.has(n.rank))
    fail_half(n.ranks, n.rank,
              n.by == Launcher::torchrun && env.has("JOB_COMPLETION_INDEX")
                  ? " (in an indexed Job of Kubernetes RANK is JOB_COMPLETION_INDEX)"
                  : "");
  if (!env.has(n.ranks)) fail_half(n.rank, n.ranks);
  Launch out{.by = n.by};
  out.ranks = static_cast<int>(env.number(n.ranks, 1, kMostRanks).value_or(1));
  out.rank = static_cast<int>(env.number(n.rank, 0, kMostRanks).value_or(0));
  if (out.rank >= out.ranks)
    fail_usage("ranks: ", n.rank, "=", out.rank, " and ", n.ranks, "=", out.ranks,
               " in the environment: ranks count from 0, so the last one is ", out.ranks - 1);
  const std::optional<std::int64_t> local = env.number(n.local_rank, 0, kMostRanks),
                                    locals = env.number(n.local_ranks, 1, kMostRanks);
  if (local) out.local_rank = static_cast<int>(*local);
  if (locals) out.local_ranks = static_cast<int>(*locals);
  if (locals && out.local_rank >= out.local_ranks)
    fail_usage("ranks: ", n.local_rank, "=", out.local_rank, " and ", n.local_ranks, "=", out.local_ranks,
               " in the environment: ranks of a machine count from 0, so the last one is ",
               out.local_ranks - 1);
  return out;
}

// A task of a step has the step's number. The batch script and interactive shells have variables of the
// allocation only, or a number from the end of the range.
bool in_slurm_step(const Reader& env) {
  constexpr std::int64_t kFirstSpecial = 0xffff'fff0;
  const std::optional<std::string> step = env.text("SLURM_STEP_ID");
  if (!step) return false;
  return env.number("SLURM_STEP_ID", 0, 0xffff'ffff).value_or(kFirstSpecial) < kFirstSpecial;
}

// "2(x3),1" are nodes with 2, 2, 2 and 1 tasks.
int tasks_of_node(std::string_view list, std::int64_t node) {
  const auto digits = [&] {
    int n = 0;
    const auto [end, error] = std::from_chars(list.data(), list.data() + list.size(), n);
    list.remove_prefix(static_cast<std::size_t>(end - list.data()));
    return error == std::errc{} ? n : 0;
  };
  while (!list.empty()) {
    const int tasks = digits();
    int times = 1;
    if (list.starts_with("(x")) {
      list.remove_prefix(2);
      times = digits();
      if (list.starts_with(')')) list.remove_prefix(1);
    }
    if (tasks < 1 || times < 1) return 1;
    if (node < times) return tasks;
    node -= times;
    if (!list.starts_with(',')) break;
    list.remove_prefix(1);
  }
  return 1;
}

// The first name of "node[01-08,10],gpu3": node01.
std::string first_host(std::string_view list) {
  const std::size_t end = list.find_first_of("[,");
  std::string name(list.substr(0, end));
  if (end == list.npos || list[end] == ',') return name;
  std::string_view inside = list.substr(end + 1);
  const std::size_t close = inside.find(']');
  name += inside.substr(0, inside.find_first_of("-,]"));
  if (close == inside.npos) return name;
  inside.remove_prefix(close + 1);
  return name.append(inside.substr(0, inside.find(',')));
}

void read_slurm(const Reader& env, Launch& launch) {
  if (const auto tasks = env.text("SLURM_STEP_TASKS_PER_NODE"))
    launch.local_ranks = tasks_of_node(*tasks, env.number("SLURM_NODEID", 0, kMostRanks).value_or(0));
  launch.local_ranks = std::max(launch.local_ranks, launch.local_rank + 1);
  const std::int64_t job = env.number("SLURM_JOB_ID", 0, std::int64_t{1} << 40).value_or(0),
                     step = env.number("SLURM_STEP_ID", 0, 0xffff'ffff).value_or(0);
  launch.token = concat("slurm ", job, ".", step);
  if (const auto nodes = env.text("SLURM_STEP_NODELIST")) launch.address = first_host(*nodes);
  launch.port = static_cast<int>(20'000 + (job * 31 + step) % 10'000);
  if (env.has("PMIX_RANK")) launch.mpi = "openmpi";
}

// Where sockets meet.
void read_meeting(const Reader& env, Launch& launch) {
  const std::optional<std::string> address = env.text("MASTER_ADDR");
  const std::optional<std::int64_t> port = env.number("MASTER_PORT", 1, 65535);
  if (address) launch.address = *address;
  if (port) launch.port = static_cast<int>(*port);
  if (const auto run = env.text("TORCHELASTIC_RUN_ID"); run && launch.by == Launcher::torchrun)
    launch.token = concat(*run, " ", env.text("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  if (const auto token = env.text("RAPT_JOB_TOKEN")) launch.token = *token;
  if (launch.ranks == 1 || (!launch.address.empty() && launch.port > 0)) return;
  const char* missing = launch.address.empty() ? "MASTER_ADDR" : "MASTER_PORT";
  fail_usage("ranks: this is rank ", launch.rank, " of ", launch.ranks, " (", name_of(launch.by), "), and ",
             missing, " is not set in the environment: the ranks would not find each other. Set MASTER_ADDR ",
             "(a name or address of rank 0's machine) and MASTER_PORT (a free port there) alike for all");
}

}  // namespace

const char* name_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::none: return "none";
    case Launcher::openmpi: return "mpirun (Open MPI)";
    case Launcher::mpich: return "mpiexec (MPICH)";
    case Launcher::slurm: return "srun";
    case Launcher::torchrun: return "RANK and WORLD_SIZE";
  }
  return "";
}

Launch find_launch(const Environment& environment) {
  const Reader env(environment);
  std::optional<Launch> found = read(env, kOpenMpi);
  if (found) found->mpi = "openmpi";
  if (!found) {
    found = read(env, kMpich);
    if (found) found->mpi = "mpich";
  }
  // torchrun may be a task of srun itself, and is then the one that counts.
  if (!found && env.has("TORCHELASTIC_RUN_ID")) found = read(env, kTorchrun);
  if (!found && in_slurm_step(env)) {
    Names names = kSlurm;
    if (!env.has(names.ranks)) names.ranks = "SLURM_NTASKS";
    found = read(env, names);
    if (found) read_slurm(env, *found);
  }
  if (!found) found = read(env, kTorchrun);
  if (!found) return {};

  if (const auto forced = env.text("RAPT_MPI")) {
    if (*forced != "openmpi" && *forced != "mpich" && *forced != "off")
      fail_usage("RAPT_MPI=", *forced, " in the environment: openmpi, mpich, or off (sockets)");
    found->mpi = *forced == "off" ? "" : *forced;
  }
  if (found->mpi.empty()) read_meeting(env, *found);
  return *found;
}

Launch find_launch() {
  return find_launch([](const char* name) { return std::getenv(name); });
}

}  // namespace rapt
