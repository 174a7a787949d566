#include "abort.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace commsched::nccl {
namespace {

// How long this waits for members whose kernels have not ended: those that are
// lost or stopped, and those that have not failed.
constexpr int64_t kMostForMembersNs = int64_t{1} * 1000 * 1000 * 1000;

// How long this waits for a launch that is under way, and how often it looks.
constexpr int64_t kMostForLaunchNs = int64_t{1} * 1000 * 1000 * 1000;
constexpr std::chrono::milliseconds kLookEach(1);

using Comms = std::vector<std::shared_ptr<Comm>>;

// What was taken, and NCCL's, in the same order.
struct Taken {
  Comms comms;
  std::vector<ncclComm_t> handles;
  Comms without;  // That have none.
  // In whose launch a thread is caught, and theirs.
  Comms caught;
  std::vector<ncclComm_t> caught_handles;

  void Add(const std::shared_ptr<Comm>& comm, ncclComm_t handle) {
    (handle == nullptr ? without : comms).push_back(comm);
    if (handle != nullptr) handles.push_back(handle);
  }
};

bool AnyInGraphs(const Comms& comms) {
  return std::any_of(comms.begin(), comms.end(),
                     [](const auto& comm) { return comm->may_be_in_graphs(); });
}

// Takes them once no launch is under way; if they are to be revoked, without
// those whose launch takes longer than is waited for.
Taken Take(Rank* rank, const Comms& comms, bool revokes) {
  Taken taken;
  const int64_t deadline_ns = rank->NowNs() + kMostForLaunchNs;
  for (const std::shared_ptr<Comm>& comm : comms) {
    ncclComm_t handle = nullptr;
    bool is_mine = false;
    while (!comm->TryTake(&is_mine, &handle)) {
      ncclComm_t const caught = comm->launching();
      if (revokes && caught != nullptr && rank->NowNs() > deadline_ns) {
        taken.caught.push_back(comm);
        taken.caught_handles.push_back(caught);
        break;
      }
      std::this_thread::sleep_for(kLookEach);
    }
    if (is_mine) taken.Add(comm, handle);
  }
  return taken;
}

void Check(Rank* rank, const char* call, ncclResult_t result) {
  if (result == ncclInProgress) return;
  const Outcome outcome = rank->library().Check(call, result);
  if (!outcome.ok()) rank->Log(outcome.reason);
}

template <typename Call>
void InGroup(Rank* rank, const std::vector<ncclComm_t>& handles,
             const Call& call) {
  Check(rank, "ncclGroupStart", rank->library().GroupStart());
  for (ncclComm_t handle : handles) call(handle);
  Check(rank, "ncclGroupEnd", rank->library().GroupEnd());
}

// Of those that were caught, too, whose launches return by it.
void Revoke(Rank* rank, const Taken& taken) {
  std::vector<ncclComm_t> handles = taken.handles;
  handles.insert(handles.end(), taken.caught_handles.begin(),
                 taken.caught_handles.end());
  if (handles.empty()) return;
  InGroup(rank, handles, [&](ncclComm_t handle) {
    Check(rank, "ncclCommRevoke",
          rank->library().CommRevoke(handle, /*flags=*/0));
  });
}

void TakeCaught(Taken* taken) {
  for (const std::shared_ptr<Comm>& comm : std::exchange(taken->caught, {})) {
    ncclComm_t handle = nullptr;
    if (comm->Take(&handle)) taken->Add(comm, handle);
  }
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

void AbortAll(Rank* rank, const Comms& comms) {
  const Library& library = rank->library();
  bool revokes = library.CommRevoke != nullptr && !AnyInGraphs(comms);
  Taken taken = Take(rank, comms, revokes);
  // A launch has perhaps been captured meanwhile.
  revokes = revokes && !AnyInGraphs(taken.comms) && !AnyInGraphs(taken.caught);
  if (revokes) Revoke(rank, taken);
  TakeCaught(&taken);
  if (revokes) {
    SayEnded(taken);
    AwaitMembers(rank, taken);
  }
  InGroup(rank, taken.handles, [&](ncclComm_t handle) {
    Check(rank, "ncclCommAbort", library.CommAbort(handle));
  });
  if (!revokes) SayEnded(taken);
  for (const auto& comm : taken.comms) comm->Left();
  for (const auto& comm : taken.without) comm->Left();
}

}  // namespace commsched::nccl
