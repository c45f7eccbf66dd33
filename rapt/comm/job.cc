// SPDX-License-Identifier: Apache-2.0
// A job from its connection to its end, orderly or with one message.
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
  const auto let_rank_0_speak = [&] {
    if (launch.rank > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1000 + 100 * std::min(launch.rank, 20)));
  };
  std::unique_ptr<Comm> comm;
  try {
    comm = connect(launch);
  } catch (const Error&) {
    let_rank_0_speak();
    throw;
  }
  try {
    f(*comm);
  } catch (const std::exception& e) {
    if (comm->size() == 1) throw;
    let_rank_0_speak();
    comm->abort(e.what());
  }
}

}  // namespace rapt
