// How a process gets to the others of its job.
#ifndef COMMSCHED_SRC_CONTROL_JOB_H_
#define COMMSCHED_SRC_CONTROL_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "control/client.h"
#include "control/launch_environment.h"

namespace commsched {

struct JobSpec {
  LaunchEnvironment environment;
  // To join, and from then on for the others to.
  int64_t timeout_ns = int64_t{60} * 1000 * 1000 * 1000;
  // ControlClientSpec::on_lost.
  std::function<void(int rank, const std::string& why)> on_lost;
  // ControlClientSpec::on_failed.
  std::function<void(int rank, uint64_t scope, const absl::Status& why)>
      on_failed;
  // ControlClientSpec::on_orders_differ.
  std::function<void(const OrderDifference&)> on_orders_differ;
  // Of rank 0: what Roster::links of all ranks becomes.
  std::string links;
  // Where ranks on one host find each other (UserFolder,
  // control/host_socket.h).
  std::string folder;
};

// A rank of a job of processes: its way to the control server, and the server
// itself, if the launcher runs none and this is rank 0. Ranks on one host then
// meet at a socket file that only their user can reach, whose name is the job's
// (LaunchEnvironment::job) and epoch; ranks on several at the address that the
// environment gives. The file goes with the server; one that a job has left
// which did not end by itself goes when another job begins.
//
// Thread-safe.
class Job {
 public:
  // Blocks until this rank has joined; others may still be on their way, and
  // are lost if they have not joined when the timeout has passed once more.
  // Errors as of ControlServer::Start and ControlClient::Connect, and
  // kAlreadyExists    another process is rank 0 of this job
  // kFailedPrecondition  others may write to or read the folder or the token
  //                   file; the job has a later epoch; MASTER_ADDR is not
  //                   loopback, and there is no token
  // kDeadlineExceeded rank 0 has not joined
  static absl::StatusOr<std::unique_ptr<Job>> Join(JobSpec spec);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Leaves the job, after which nothing can be asked (ControlClient::Leave).
  // Blocks up to `timeout_ns`, until all have left or are lost. The destructor
  // leaves, too: where rank 0 runs the server, it waits for what is left of
  // that time, or without this call for as long as joining might have taken,
  // until the others have gone, as the server goes with it.
  void Leave(int64_t timeout_ns);

  ControlClient& client();
  int rank() const;
  int size() const;
  // How long it waited, and waits, for ranks to join.
  int64_t timeout_ns() const;

 private:
  class Impl;
  explicit Job(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_JOB_H_
