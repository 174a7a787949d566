// What launchers tell the processes that they start.
#ifndef COMMSCHED_SRC_CONTROL_LAUNCH_ENVIRONMENT_H_
#define COMMSCHED_SRC_CONTROL_LAUNCH_ENVIRONMENT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/env.h"

namespace commsched {

// This process among the processes of its job.
struct LaunchEnvironment {
  std::string launcher;  // "torchrun", for messages; "" if there is none.
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // Among those on this host.
  int local_size = 1;
  uint64_t epoch = 0;  // Counts the restarts of the job.
  // What the environment says that tells this job from others: the launcher,
  // its name for the job, where rank 0 serves; equal on all ranks, and short
  // enough for a message. "": it says nothing.
  std::string job;
  // Set by every process that the launcher starts, and by no other: whoever has
  // a parent without it is the launcher's child. "" if there is no launcher.
  std::string rank_variable;
  // A control server that somebody else runs, or, if `rank_0_serves`, where
  // rank 0 does. None if the host is "": all ranks are on one host, or there is
  // one rank.
  std::string server_host;
  uint16_t server_port = 0;
  bool rank_0_serves = true;
  std::string host_id;     // Ranks with another one are on another host.
  std::string token;       // The job token, or
  std::string token_file;  // the file that has it; "": none.
};

// Reads, in this order of precedence, the variables of `commsched run`
// (COMMSCHED_RANK, ...), torchrun (RANK, WORLD_SIZE, LOCAL_RANK, ...), Open
// MPI's mpirun (OMPI_COMM_WORLD_RANK, ...), MPICH's (PMI_RANK, ...) and srun
// (SLURM_PROCID, ...). A process that none of them has started is a job of one.
//
// The control server is that of COMMSCHED_CONTROL (host:port), which somebody
// else runs; else rank 0 runs one: at MASTER_ADDR and COMMSCHED_PORT, which is
// the port after MASTER_PORT by default, or under srun on the first node of the
// step, if the ranks are on several hosts. The token is that of COMMSCHED_TOKEN
// or in the file COMMSCHED_TOKEN_FILE, the epoch COMMSCHED_EPOCH or torchrun's
// TORCHELASTIC_RESTART_COUNT. COMMSCHED_HOST_ID parts the ranks of one machine
// among hosts.
//
// kInvalidArgument, naming the variable, its value and what is allowed;
// kFailedPrecondition if the ranks are on several hosts and nothing says where
// the server is.
absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment(
    const Env::Lookup& lookup);

// Takes `text`, host:port or [host]:port, for the control server that somebody
// else runs. kInvalidArgument, naming `what` it is.
absl::Status SetControl(absl::string_view what, absl::string_view text,
                        LaunchEnvironment* out);

// The first host of a list as Slurm writes it: "n03" of "n[03-06,9],m1".
std::string FirstSlurmHost(absl::string_view list);

// How many tasks node `index` has, of a list as Slurm writes it: "4(x2),3". 0
// if the list does not say.
int SlurmTasksOfNode(absl::string_view list, int index);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_LAUNCH_ENVIRONMENT_H_
