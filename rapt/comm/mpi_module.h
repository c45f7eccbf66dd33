// SPDX-License-Identifier: Apache-2.0
// What a module for one MPI library offers: a shared object beside the program (rapt_mpi_openmpi.so,
// rapt_mpi_mpich.so), opened only where that library's launcher started the program, which is therefore
// linked to none. The types of an MPI stay inside. All functions but `message` return 0 or an error's number.
#pragma once
#include <cstddef>

struct RaptMpi {
  static constexpr int kVersion = 1;  // of this struct
  int version;
  const char* library;  // "Open MPI", "MPICH"
  // Starts MPI. threads: whether any thread may call, one at a time.
  int (*start)(int* rank, int* ranks, int* threads);
  // Begins to send send[r] to each rank r and to receive receive[r] from it; nothing to and from oneself.
  int (*begin)(const void* const* send, const std::size_t* sent, void* const* receive,
               const std::size_t* received);
  int (*test)(int* done);  // whether that is over; to be called until it is
  int (*stop)();  // the orderly end of MPI
  void (*abort)(int code);
  void (*message)(int error, char* text, std::size_t room);
};

// The one symbol of a module.
extern "C" const RaptMpi* rapt_mpi();
using RaptMpiFunction = const RaptMpi* (*)();
