#include "abort.h"

#include <string>

namespace commsched::nccl {

void AbortAll(Rank* rank, const std::vector<std::shared_ptr<Comm>>& comms) {
  const Library& library = rank->library();
  const auto check = [&](const char* call, ncclResult_t result) {
    if (result == ncclInProgress) return;
    const Outcome outcome = library.Check(call, result);
    if (!outcome.ok()) rank->Log(outcome.reason);
  };
  std::vector<std::shared_ptr<Comm>> taken;
  std::vector<ncclComm_t> handles;
  for (const std::shared_ptr<Comm>& comm : comms) {
    ncclComm_t handle = nullptr;
    if (!comm->Take(&handle)) continue;
    taken.push_back(comm);
    if (handle != nullptr) handles.push_back(handle);
  }
  check("ncclGroupStart", library.GroupStart());
  for (ncclComm_t handle : handles) {
    check("ncclCommAbort", library.CommAbort(handle));
  }
  check("ncclGroupEnd", library.GroupEnd());
  for (const std::shared_ptr<Comm>& comm : taken) comm->Left();
}

}  // namespace commsched::nccl
