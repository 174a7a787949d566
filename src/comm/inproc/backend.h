#ifndef COMMSCHED_SRC_COMM_INPROC_BACKEND_H_
#define COMMSCHED_SRC_COMM_INPROC_BACKEND_H_

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "comm/inproc/comm.h"
#include "comm/inproc/emulated_link.h"
#include "comm/inproc/members.h"
#include "comm/world.h"
#include "commsched/plugin.h"

namespace commsched {

// What the communicators of one world share: the links of its ranks, and where
// members find each other by id. Outlives the communicators.
//
// Thread-safe.
class InprocBackend {
 public:
  InprocBackend(int world_size, const LinkSpec& link, const Clock* clock)
      : world_size_(world_size), clock_(clock), link_(link, world_size) {}

  int world_size() const { return world_size_; }

  // The communicator that `desc` describes, joined by its rank. The first
  // member makes it.
  absl::StatusOr<std::shared_ptr<InprocComm>> Join(
      const commsched_comm_desc_t* desc, const InprocMembers::Waker& waker);

  // To be called by a member that has left. The communicator is forgotten with
  // the last of its members: one that comes when others have failed and left
  // must still learn of it, and not wait for them in a new one.
  void Forget(const std::string& id);

 private:
  const int world_size_;
  const Clock* const clock_;
  EmulatedLink link_;

  Mutex mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<InprocComm>> comms_
      ABSL_GUARDED_BY(mu_);
};

// Ranks are threads of one process. See comm.h.
const commsched_backend_t* InprocTable();

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_INPROC_BACKEND_H_
