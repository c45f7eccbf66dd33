// SPDX-License-Identifier: Apache-2.0
// Environments as launchers set them, and halves of them.
#include "rapt/comm/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "rapt/base/error.h"

namespace rapt {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Launch launch_of(const Variables& variables) {
  return find_launch([&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

std::string refusal(const Variables& variables) {
  try {
    const Launch l = launch_of(variables);
    return concat("accepted: rank ", l.rank, " of ", l.ranks, " by ", name_of(l.by));
  } catch (const Error& e) {
    EXPECT_TRUE(e.is_usage());
    return e.what();
  }
}

std::string words(const Launch& l) {
  return concat(name_of(l.by), ": ", l.rank, "/", l.ranks, ", here ", l.local_rank, "/", l.local_ranks, ", ",
                l.mpi.empty() ? concat(l.address, ":", l.port, " '", l.token, "'") : l.mpi);
}

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "5"},
                            {"OMPI_COMM_WORLD_SIZE", "8"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"PMIX_RANK", "5"}};
const Variables kMpich = {{"PMI_RANK", "2"},
                          {"PMI_SIZE", "3"},
                          {"PMI_FD", "7"},
                          {"MPI_LOCALRANKID", "2"},
                          {"MPI_LOCALNRANKS", "3"}};
// srun in a job of five tasks on three nodes, without a plugin for MPI.
const Variables kSlurm = {{"SLURM_JOB_ID", "4711"},
                          {"SLURM_STEP_ID", "2"},
                          {"SLURM_PROCID", "4"},
                          {"SLURM_NTASKS", "5"},
                          {"SLURM_STEP_NUM_TASKS", "5"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "2"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                          {"SLURM_STEP_NODELIST", "node[07-08,11]"}};
const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "10.0.0.1"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "none"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"}};

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}
Variables without(Variables base, const char* name) {
  base.erase(name);
  return base;
}

TEST(Launch, ReadsWhatLaunchersSet) {
  EXPECT_EQ(words(launch_of({})), "none: 0/1, here 0/1, :0 ''");
  EXPECT_EQ(words(launch_of(kOpenMpi)), "mpirun (Open MPI): 5/8, here 1/4, openmpi");
  EXPECT_EQ(words(launch_of(kMpich)), "mpiexec (MPICH): 2/3, here 2/3, mpich");
  EXPECT_EQ(words(launch_of(kSlurm)), "srun: 4/5, here 0/1, node07:26043 'slurm 4711.2'");
  EXPECT_EQ(words(launch_of(with(
                kSlurm,
                {{"SLURM_NODEID", "1"}, {"SLURM_LOCALID", "1"}, {"PMIX_RANK", "3"}, {"SLURM_PROCID", "3"}}))),
            "srun: 3/5, here 1/2, openmpi");
  EXPECT_EQ(words(launch_of(with(kSlurm, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1234"}}))),
            "srun: 4/5, here 0/1, a:1234 'slurm 4711.2'");
  EXPECT_EQ(launch_of(with(kSlurm, {{"SLURM_STEP_NODELIST", "gpu3,gpu7"}})).address, "gpu3");
  EXPECT_EQ(words(launch_of(kTorchrun)), "RANK and WORLD_SIZE: 3/4, here 1/2, 10.0.0.1:29500 'none 2'");
  EXPECT_EQ(words(launch_of({{"RANK", "1"},
                             {"WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "h"},
                             {"MASTER_PORT", "1"},
                             {"RAPT_JOB_TOKEN", "mine"}})),
            "RANK and WORLD_SIZE: 1/2, here 0/1, h:1 'mine'");
  EXPECT_EQ(launch_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).ranks, 1);  // nobody to meet
}

TEST(Launch, TheInnermostLauncherCounts) {
  // mpirun in an allocation, and torchrun as a task of srun.
  EXPECT_EQ(launch_of(with(kSlurm, kOpenMpi)).by, Launcher::openmpi);
  EXPECT_EQ(launch_of(with(kSlurm, kMpich)).by, Launcher::mpich);
  EXPECT_EQ(words(launch_of(with(kSlurm, kTorchrun))),
            "RANK and WORLD_SIZE: 3/4, here 1/2, 10.0.0.1:29500 'none 2'");
  EXPECT_EQ(launch_of(with(kSlurm, {{"RANK", "1"}, {"WORLD_SIZE", "2"}})).by, Launcher::slurm);
}

// Variables of an allocation that are no task's: the batch script, a shell, an interactive step.
TEST(Launch, AShellInAnAllocationIsNoRank) {
  EXPECT_EQ(launch_of({{"SLURM_JOB_ID", "9"}, {"SLURM_NTASKS", "8"}}).ranks, 1);
  EXPECT_EQ(launch_of({{"SLURM_JOB_ID", "9"},
                       {"SLURM_NTASKS", "8"},
                       {"SLURM_PROCID", "0"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_NODEID", "0"},
                       {"SLURM_TASK_PID", "77"}})
                .ranks,
            1);
  EXPECT_EQ(launch_of(with(kSlurm, {{"SLURM_STEP_ID", "4294967290"}})).ranks, 1);
  EXPECT_EQ(launch_of(with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}})).ranks, 1);
}

TEST(Launch, ChoosesHowRanksAreConnected) {
  const Variables meeting = {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "5"}};
  EXPECT_EQ(launch_of(with(kMpich, {{"RAPT_MPI", "openmpi"}})).mpi, "openmpi");
  EXPECT_EQ(launch_of(with(kTorchrun, {{"RAPT_MPI", "mpich"}})).mpi, "mpich");
  EXPECT_EQ(words(launch_of(with(with(kOpenMpi, meeting), {{"RAPT_MPI", "off"}}))),
            "mpirun (Open MPI): 5/8, here 1/4, h:5 ''");
  EXPECT_THAT(refusal(with(kOpenMpi, {{"RAPT_MPI", "off"}})),
              HasSubstr("rank 5 of 8 (mpirun (Open MPI)), and MASTER_ADDR is not set"));
  EXPECT_THAT(refusal(with(kOpenMpi, {{"RAPT_MPI", "lam"}})),
              HasSubstr("RAPT_MPI=lam in the environment: openmpi, mpich, or off"));
}

TEST(Launch, HalvesAndContradictionsAreRefused) {
  for (const auto& [all, names] :
       {std::pair{kOpenMpi, std::array{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}},
        std::pair{kMpich, std::array{"PMI_RANK", "PMI_SIZE"}},
        std::pair{without(kTorchrun, "TORCHELASTIC_RUN_ID"), std::array{"RANK", "WORLD_SIZE"}}})
    for (const int missing : {0, 1}) {
      const std::string there = names[static_cast<std::size_t>(1 - missing)],
                        gone = names[static_cast<std::size_t>(missing)];
      EXPECT_THAT(refusal(without(all, gone.c_str())),
                  HasSubstr(concat("ranks: ", there, " is set in the environment and ", gone, " is not")));
      EXPECT_THAT(refusal(with(all, {{gone, ""}})), HasSubstr(" is not"));
    }
  EXPECT_THAT(refusal(without(kTorchrun, "MASTER_ADDR")), HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(refusal(without(kTorchrun, "MASTER_PORT")), HasSubstr("MASTER_PORT is not set"));
  EXPECT_THAT(refusal({{"JOB_COMPLETION_INDEX", "1"}, {"WORLD_SIZE", "3"}}),
              HasSubstr("RANK is JOB_COMPLETION_INDEX"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "4"}})), HasSubstr("RANK=4 and WORLD_SIZE=4"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "-1"}})),
              HasSubstr("RANK=-1 in the environment is no whole"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "1x"}})), HasSubstr("RANK=1x"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"WORLD_SIZE", "0"}})), HasSubstr("WORLD_SIZE=0"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"WORLD_SIZE", "99999999999999999999"}})), HasSubstr("WORLD_SIZE=9"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"MASTER_PORT", "70000"}})), HasSubstr("MASTER_PORT=70000"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"LOCAL_RANK", "2"}})),
              HasSubstr("LOCAL_RANK=2 and LOCAL_WORLD_SIZE=2"));
  EXPECT_THAT(refusal(with(kSlurm, {{"SLURM_PROCID", "5"}})), HasSubstr("SLURM_PROCID=5"));
  EXPECT_THAT(refusal(without(kSlurm, "SLURM_PROCID")),
              HasSubstr("SLURM_STEP_NUM_TASKS is set in the environment and SLURM_PROCID is not"));
}

}  // namespace
}  // namespace rapt
