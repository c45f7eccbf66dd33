// SPDX-License-Identifier: Apache-2.0
// The ranks of a job that a launcher started as processes (launch.h).
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "rapt/comm/comm.h"
#include "rapt/comm/launch.h"

namespace rapt {

// Connects this process with the other ranks: over the MPI library that launch.mpi names, or over sockets;
// alone() where there is one. Fails with what is missing, and what to do.
std::unique_ptr<Comm> connect(const Launch& launch);

// f as this rank of the job. Where it throws, the job ends with its message, written once: by rank 0 at once,
// by others if the job is still there a moment later, since what one rank finds wrong they mostly all do.
void run_job(const Launch& launch, const std::function<void(Comm&)>& f);

// Over MPI. abort() writes its reason to standard error and does not return.
std::unique_ptr<Comm> mpi_ranks(const Launch& launch);
// Over TCP, from launch.address on; RAPT_RANK_CONNECT: for so many seconds they try to (300).
std::unique_ptr<Comm> socket_ranks(const Launch& launch);
// "Open MPI", "MPICH": of which this build has the modules, where they are.
std::string mpi_modules();

}  // namespace rapt
