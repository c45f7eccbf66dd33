// SPDX-License-Identifier: Apache-2.0
// Ranks over MPI, through a module that is opened at run time (mpi_module.h). Nobody spins while it waits:
// several ranks may share a core, and threads of ours compute meanwhile.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "rapt/base/error.h"
#include "rapt/comm/job.h"
#include "rapt/comm/links.h"
#include "rapt/comm/mpi_module.h"

namespace rapt {
namespace {

struct Known {
  const char *name, *library, *packages;
};
constexpr std::array<Known, 2> kKnown = {
    {{"openmpi", "Open MPI", "libopenmpi-dev openmpi-bin"}, {"mpich", "MPICH", "libmpich-dev mpich"}}};

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Where modules may lie: beside the program, or beside the library that this code is in; ../lib/rapt.
std::vector<std::string> module_folders() {
  std::vector<std::string> out;
  const auto add = [&](const std::string& folder) {
    for (const std::string& f : {folder, folder + "/../lib/rapt", folder + "/rapt"})
      if (std::find(out.begin(), out.end(), f) == out.end()) out.push_back(f);
  };
  std::array<char, 4096> path{};
  if (const ssize_t n = ::readlink("/proc/self/exe", path.data(), path.size() - 1); n > 0)
    add(folder_of(path.data()));
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&mpi_modules), &info) && info.dli_fname)
    if (const std::string own = info.dli_fname; own.find('/') != own.npos) add(folder_of(own));
  return out;
}

std::string module_file(const Known& known) { return concat("rapt_mpi_", known.name, ".so"); }

std::string find_module(const Known& known) {
  for (const std::string& folder : module_folders())
    if (const std::string path = folder + "/" + module_file(known); ::access(path.c_str(), R_OK) == 0)
      return path;
  return "";
}

const RaptMpi& open_module(const Launch& launch) {
  const auto known =
      std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& k) { return launch.mpi == k.name; });
  if (known == kKnown.end()) fail("mpi: '", launch.mpi, "' is no library that Rapt knows");
  const std::string path = find_module(*known);
  const std::string others =
      ", or connect the ranks without MPI: RAPT_MPI=off, with MASTER_ADDR and MASTER_PORT";
  if (path.empty())
    fail(name_of(launch.by), " started ", launch.ranks, " ranks, and ", module_file(*known),
         ", which connects them over ", known->library, ", lies neither in ",
         folder_of(module_folders()[0] + "/"), " nor in ../lib/rapt beside it: this program was built where ",
         known->library, " was not found. Install it (Debian: ", known->packages, ") and build again",
         others);
  // What the library itself loads must find its symbols: global.
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!module) {
    const char* why = ::dlerror();
    fail(path, ": cannot be opened: ", why ? why : "no reason given", "; install ", known->library,
         " on this machine (Debian: ", known->packages, ")", others);
  }
  const auto function = reinterpret_cast<RaptMpiFunction>(::dlsym(module, "rapt_mpi"));
  const RaptMpi* mpi = function ? function() : nullptr;
  if (!mpi || mpi->version != RaptMpi::kVersion)
    fail(path, ": belongs to another version of the program; build both again, from one source");
  return *mpi;
}

// Between two looks whether something has come: a few at once, then sleeps, which grow once all that is on
// its way should have moved. No sched_yield: on a busy machine it waits until everybody else had a turn,
// where a sleeper is woken first. Beside ten busy processes on two cores, 20 small steps of two ranks under
// Open MPI took 5 and 37 s with it, 2 and 3 s so.
class Patience {
 public:
  explicit Patience(std::size_t bytes) : moving_until_(Clock::now() + std::chrono::nanoseconds(bytes)) {}
  void wait() {
    constexpr int kAtOnce = 20;
    if (++looks_ < kAtOnce) return;
    std::this_thread::sleep_for(pause_);
    if (Clock::now() > moving_until_) pause_ = std::min(pause_ * 2, std::chrono::microseconds(100));
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point moving_until_;  // a byte a nanosecond
  int looks_ = 0;
  std::chrono::microseconds pause_{10};
};

class MpiLinks final : public Links {
 public:
  explicit MpiLinks(const Launch& launch) : mpi_(open_module(launch)) {
    int threads = 0;
    check("MPI_Init_thread", mpi_.start(&rank_, &size_, &threads));
    if (rank_ != launch.rank || size_ != launch.ranks)
      fail(name_of(launch.by), " says that this is rank ", launch.rank, " of ", launch.ranks, ", ",
           mpi_.library, " says rank ", rank_, " of ", size_,
           ": the launcher belongs to another MPI. Name the right one: RAPT_MPI=openmpi or RAPT_MPI=mpich");
    if (!threads)
      fail(mpi_.library, " on this machine does not let more than one thread call it, even one at a time ",
           "(MPI_THREAD_SERIALIZED): use another build of it, or RAPT_MPI=off");
    const auto n = static_cast<std::size_t>(size_);
    send_.resize(n), receive_.resize(n), sent_.resize(n), received_.resize(n);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void exchange(std::span<const Comm::Bytes> send, std::span<const Comm::Space> receive) override {
    std::size_t bytes = 0;
    for (std::size_t r = 0; r < send_.size(); ++r) {
      send_[r] = send[r].data(), sent_[r] = send[r].size();
      receive_[r] = receive[r].data(), received_[r] = receive[r].size();
      if (r != static_cast<std::size_t>(rank_)) bytes += std::max(sent_[r], received_[r]);
    }
    if (bytes == 0) return;
    check("a message", mpi_.begin(send_.data(), sent_.data(), receive_.data(), received_.data()));
    Patience patience(bytes);
    for (int done = 0;;) {
      check("a message", mpi_.test(&done));
      if (done) return;
      patience.wait();
    }
  }
  [[noreturn]] void abort(const std::string& text) override {
    std::fprintf(stderr, "error: %s\n", text.c_str());
    std::fflush(stderr);
    // The launcher kills at once and would drop what it has not handed on yet (mpiexec of MPICH).
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    mpi_.abort(1);
    std::_Exit(1);
  }
  void close() override { check("MPI_Finalize", mpi_.stop()); }
  // Until their MPI_Abort ends this process, too: else mpiexec of MPICH may call that success.
  void left() override { std::this_thread::sleep_for(std::chrono::seconds(5)); }

 private:
  void check(const char* what, int error) const {
    if (error == 0) return;
    std::array<char, 600> text{};
    mpi_.message(error, text.data(), text.size());
    fail(mpi_.library, ": ", what, ": ", text.data());
  }

  const RaptMpi& mpi_;
  int rank_ = 0, size_ = 0;
  std::vector<const void*> send_;
  std::vector<void*> receive_;
  std::vector<std::size_t> sent_, received_;
};

}  // namespace

std::unique_ptr<Comm> mpi_ranks(const Launch& launch) {
  return comm_over(std::make_unique<MpiLinks>(launch));
}

std::string mpi_modules() {
  std::string out;
  for (const Known& k : kKnown)
    if (!find_module(k).empty()) out += concat(out.empty() ? "" : ", ", k.library);
  return out;
}

}  // namespace rapt
