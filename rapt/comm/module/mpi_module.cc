// SPDX-License-Identifier: Apache-2.0
// The module for one MPI library: this source, compiled with that library's mpi.h (cmake/mpi.cmake). It uses
// nothing of the project but the struct that it fills.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "rapt/comm/mpi_module.h"

namespace {

constexpr std::size_t kMost = std::size_t{1} << 30;  // of a message: counts are int

MPI_Comm ranks_of_job = MPI_COMM_NULL;
int own = 0, size = 0;
std::vector<MPI_Request> requests;

int start(int* rank, int* ranks, int* threads) {
  // Whoever waits sleeps; Open MPI need not let others go first whenever it is asked.
  setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
  int given = 0;
  if (const int e = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given)) return e;
  if (const int e = MPI_Comm_dup(MPI_COMM_WORLD, &ranks_of_job)) return e;
  // Errors come back as numbers, and the job ends with a message of ours.
  MPI_Comm_set_errhandler(ranks_of_job, MPI_ERRORS_RETURN);
  MPI_Comm_rank(ranks_of_job, &own);
  MPI_Comm_size(ranks_of_job, &size);
  *rank = own, *ranks = size, *threads = given >= MPI_THREAD_SERIALIZED;
  return 0;
}

// f(at, bytes) for each piece of at most kMost.
template <class F>
int in_messages(std::size_t bytes, const F& f) {
  for (std::size_t at = 0; at < bytes; at += kMost) {
    requests.push_back(MPI_REQUEST_NULL);
    if (const int e = f(at, static_cast<int>(std::min(kMost, bytes - at)))) return e;
  }
  return 0;
}

int begin(const void* const* send, const std::size_t* sent, void* const* receive,
          const std::size_t* received) {
  requests.clear();
  // Each rank begins with its neighbour, so that not all of them send to the same one.
  for (int i = 1; i < size; ++i) {
    const int from = (own + size - i) % size;
    const auto into = [&](std::size_t at, int n) {
      return MPI_Irecv(static_cast<char*>(receive[from]) + at, n, MPI_BYTE, from, 0, ranks_of_job,
                       &requests.back());
    };
    if (const int e = in_messages(received[from], into)) return e;
  }
  for (int i = 1; i < size; ++i) {
    const int to = (own + i) % size;
    const auto out = [&](std::size_t at, int n) {
      return MPI_Isend(static_cast<const char*>(send[to]) + at, n, MPI_BYTE, to, 0, ranks_of_job,
                       &requests.back());
    };
    if (const int e = in_messages(sent[to], out)) return e;
  }
  return 0;
}

int test(int* done) {
  return MPI_Testall(static_cast<int>(requests.size()), requests.data(), done, MPI_STATUSES_IGNORE);
}

int stop() {
  if (const int e = MPI_Comm_free(&ranks_of_job)) return e;
  return MPI_Finalize();
}

void end_job(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

void message(int error, char* text, std::size_t room) {
  char whole[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  MPI_Error_string(error, whole, &length);
  std::snprintf(text, room, "%s", whole);
}

const RaptMpi kModule = {RaptMpi::kVersion, RAPT_MPI_LIBRARY, start, begin, test, stop, end_job, message};

}  // namespace

extern "C" __attribute__((visibility("default"))) const RaptMpi* rapt_mpi() { return &kModule; }
