#include "abort.h"

#include <algorithm>
#include <string>

namespace commsched::nccl {
namespace {

// How long this waits for members whose kernels have not ended: those that are
// lost or stopped, and those that have not failed.
constexpr int64_t kMostForMembersNs = int64_t{1} * 1000 * 1000 * 1000;

// What was taken, and NCCL's, in the same order.
struct Taken {
  std::vector<std::shared_ptr<Comm>> comms;
  std::vector<ncclComm_t> handles;
  std::vector<std::shared_ptr<Comm>> without;  // That have none.

  bool any_in_graphs() const {
    return std::any_of(comms.begin(), comms.end(), [](const auto& comm) {
      return comm->may_be_in_graphs();
    });
  }
};

Taken Take(const std::vector<std::shared_ptr<Comm>>& comms) {
  Taken taken;
  for (const std::shared_ptr<Comm>& comm : comms) {
    ncclComm_t handle = nullptr;
    if (!comm->Take(&handle)) continue;
    (handle == nullptr ? taken.without : taken.comms).push_back(comm);
    if (handle != nullptr) taken.handles.push_back(handle);
  }
  return taken;
}

void Check(Rank* rank, const char* call, ncclResult_t result) {
  if (result == ncclInProgress) return;
  const Outcome outcome = rank->library().Check(call, result);
  if (!outcome.ok()) rank->Log(outcome.reason);
}

template <typename Call>
void InGroup(Rank* rank, const Taken& taken, const Call& call) {
  Check(rank, "ncclGroupStart", rank->library().GroupStart());
  for (ncclComm_t handle : taken.handles) call(handle);
  Check(rank, "ncclGroupEnd", rank->library().GroupEnd());
}

void SayEnded(const Taken& taken) {
  for (const auto& comm : taken.comms) comm->SayEnded();
}

// What kernels of members on the host may still read is freed after this.
void AwaitMembers(Rank* rank, const Taken& taken) {
  const int64_t deadline_ns = rank->NowNs() + kMostForMembersNs;
  for (const std::shared_ptr<Comm>& comm : taken.comms) {
    const Outcome ended = comm->AwaitEnded(deadline_ns);
    if (ended.ok()) continue;
    // Where a rank is lost, the host does not say what others have left.
    rank->AwaitClose(deadline_ns);
    rank->Log(ended.reason + "; its memory is freed all the same");
    return;
  }
}

}  // namespace

void AbortAll(Rank* rank, const std::vector<std::shared_ptr<Comm>>& comms) {
  const Library& library = rank->library();
  const Taken taken = Take(comms);
  const bool revokes = library.CommRevoke != nullptr && !taken.any_in_graphs();
  if (revokes && !taken.handles.empty()) {
    InGroup(rank, taken, [&](ncclComm_t handle) {
      Check(rank, "ncclCommRevoke", library.CommRevoke(handle, /*flags=*/0));
    });
    SayEnded(taken);
    AwaitMembers(rank, taken);
  }
  InGroup(rank, taken, [&](ncclComm_t handle) {
    Check(rank, "ncclCommAbort", library.CommAbort(handle));
  });
  if (!revokes) SayEnded(taken);
  for (const auto& comm : taken.comms) comm->Left();
  for (const auto& comm : taken.without) comm->Left();
}

}  // namespace commsched::nccl
