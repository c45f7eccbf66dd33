// SPDX-License-Identifier: Apache-2.0
// Who started this process as one of several ranks, by the variables that launchers set. What is set by
// halves, or contradicts itself, is refused: a rank that took itself for the only one would train alone.
#pragma once
#include <functional>
#include <string>

namespace rapt {

enum class Launcher { none, openmpi, mpich, slurm, torchrun };

struct Launch {
  Launcher by = Launcher::none;
  int rank = 0, ranks = 1;              // of the job
  int local_rank = 0, local_ranks = 1;  // … of those on this machine; 1 where the launcher does not say
  // Whose library connects the ranks, "openmpi" or "mpich"; "": sockets, which meet at address:port, and know
  // by `token` that they belong to one job.
  std::string mpi = {};
  std::string address = {};
  int port = 0;
  std::string token = {};
};

// A variable's value, nullptr where it is not set.
using Environment = std::function<const char*(const char* name)>;

// The first that is there of: Open MPI's mpirun, MPICH's mpiexec, torchrun, srun, RANK and WORLD_SIZE by hand
// (or by an operator). A shell in an allocation of Slurm is none of its ranks; a step's tasks are.
// RAPT_MPI=openmpi, mpich or off (sockets) chooses how ranks are connected. Fails where variables are half a
// set, no numbers, or a rank that is not below their number.
Launch find_launch(const Environment& environment);
Launch find_launch();  // by the process's own

const char* name_of(Launcher launcher);  // "mpirun (Open MPI)"

}  // namespace rapt
