// SPDX-License-Identifier: Apache-2.0
#include "rapt/comm/job.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "rapt/base/error.h"

namespace rapt {

std::unique_ptr<Comm> connect(const Launch& launch) {
  if (launch.ranks == 1) return alone();
  return launch.mpi.empty() ? socket_ranks(launch) : mpi_ranks(launch);
}

void run_job(const Launch& launch, const std::function<void(Comm&)>& f) {
  const std::unique_ptr<Comm> comm = connect(launch);
  try {
    f(*comm);
  } catch (const std::exception& e) {
    if (comm->size() == 1) throw;
    if (comm->rank() > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1000 + 100 * std::min(comm->rank(), 20)));
    comm->abort(e.what());
  }
}

}  // namespace rapt
