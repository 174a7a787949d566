#ifndef COMMSCHED_PLUGINS_NCCL_ABORT_H_
#define COMMSCHED_PLUGINS_NCCL_ABORT_H_

#include <memory>
#include <vector>

#include "comm.h"
#include "rank.h"

namespace commsched::nccl {

// Aborts and frees communicators of `rank` that are marked as aborted. Returns
// once NCCL has freed all of them. The kernels of all end before the first is
// freed: freeing one waits for the device, and so for kernels of the others,
// whose peers may be gone.
//
// Where NCCL has ncclCommRevoke, all are revoked, then aborted one by one when
// NCCL says of each that its kernels have ended. Older versions abort all in
// one group, as does a newer one where a communicator is not revoked or has
// kernels left after a second.
//
// A launch that is under way is waited for before its communicator is freed,
// since it goes on using it. ncclCommRevoke ends what such a launch waits for.
// Older versions have nothing that does, so there an abort waits until the
// launch returns; the warm-up leaves a launch no connection to wait for.
void AbortAll(Rank* rank, const std::vector<std::shared_ptr<Comm>>& comms);

}  // namespace commsched::nccl

#endif  // COMMSCHED_PLUGINS_NCCL_ABORT_H_
