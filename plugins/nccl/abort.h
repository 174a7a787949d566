#ifndef COMMSCHED_PLUGINS_NCCL_ABORT_H_
#define COMMSCHED_PLUGINS_NCCL_ABORT_H_

#include <memory>
#include <vector>

#include "comm.h"
#include "rank.h"

namespace commsched::nccl {

// Aborts and frees communicators of `rank` that are marked as aborted. Returns
// once NCCL has freed all of them, which waits for the device, and for the
// graphs with launches of theirs, so that those which graphs may have are a
// call of their own, beside; kernels end at once. All go in one group: to
// abort one waits for kernels of the next, whose peers may be gone.
//
// An abort frees memory which kernels of other members on the host may still
// read (NVIDIA/nccl, issue 863). So all are revoked before, in one group, which
// ends kernels and frees nothing (ncclCommRevoke, 2.28.7), and members on the
// host tell each other that theirs have ended: one that is lost or stopped is
// waited for for a second, and logged. That is not so of an older NCCL, and not
// where graphs may have launches: the next launch of a graph with a revoked
// communicator ends the process (docs/devices.md).
//
// A launch that is under way is waited for first, since it goes on using its
// communicator. NCCL may keep it for ever, where a member is lost that it has
// just begun to connect; so after a second it is revoked beside the launch,
// which has NCCL return (seen on an H200 of a thread that a full queue held).
// An older NCCL has nothing for that, and the abort waits.
void AbortAll(Rank* rank, const std::vector<std::shared_ptr<Comm>>& comms);

}  // namespace commsched::nccl

#endif  // COMMSCHED_PLUGINS_NCCL_ABORT_H_
