#include "abort.h"

#include <chrono>
#include <string>
#include <thread>

namespace commsched::nccl {
namespace {

// Kernels look at their abort flag all the time, so that revoked ones end
// within milliseconds.
constexpr std::chrono::seconds kMostForKernels{1};
constexpr std::chrono::microseconds kBetweenLooks{100};

using Comms = std::vector<std::shared_ptr<Comm>>;

// Whether all were.
bool RevokeAll(Rank* rank, const Comms& comms) {
  if (rank->library().CommRevoke == nullptr) return false;
  bool all = true;
  for (const std::shared_ptr<Comm>& comm : comms) {
    const Outcome revoked = comm->Revoke();
    if (revoked.ok()) continue;
    rank->Log(comm->name() + ": " + revoked.reason);
    all = false;
  }
  return all;
}

// Whether the kernels of all have ended. ncclCommRevoke returns before they
// have.
bool AwaitKernels(Rank* rank, const Comms& comms) {
  // Not the host's clock, which may stand still.
  const auto deadline = std::chrono::steady_clock::now() + kMostForKernels;
  for (const std::shared_ptr<Comm>& comm : comms) {
    while (!comm->IsQuiescent()) {
      if (std::chrono::steady_clock::now() >= deadline) {
        rank->Log(comm->name() +
                  ": kernels still run 1 s after the revocation");
        return false;
      }
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }
  return true;
}

}  // namespace

void AbortAll(Rank* rank, const Comms& comms) {
  const Library& library = rank->library();
  const bool kernels_ended =
      RevokeAll(rank, comms) && AwaitKernels(rank, comms);
  const bool in_group = !kernels_ended;
  const auto check = [&](const char* call, ncclResult_t result) {
    if (result == ncclInProgress) return;
    const Outcome outcome = library.Check(call, result);
    if (!outcome.ok()) rank->Log(outcome.reason);
  };
  Comms taken;
  std::vector<ncclComm_t> handles;
  for (const std::shared_ptr<Comm>& comm : comms) {
    ncclComm_t handle = nullptr;
    if (!comm->Take(&handle)) continue;
    taken.push_back(comm);
    if (handle != nullptr) handles.push_back(handle);
  }
  if (in_group) check("ncclGroupStart", library.GroupStart());
  for (ncclComm_t handle : handles) {
    check("ncclCommAbort", library.CommAbort(handle));
  }
  if (in_group) check("ncclGroupEnd", library.GroupEnd());
  for (const std::shared_ptr<Comm>& comm : taken) comm->Left();
}

}  // namespace commsched::nccl
