#ifndef COMMSCHED_SRC_COMM_WORLD_H_
#define COMMSCHED_SRC_COMM_WORLD_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/meeting.h"
#include "commsched/plugin.h"

namespace commsched {

struct WorldSpec {
  int size = 0;
  std::string backend = "inproc";
  std::string backend_config;  // commsched_world_desc_t
  // Used instead of the backend called `backend` if set: how a test brings its
  // own. Outlives the world.
  const commsched_backend_t* table = nullptr;
};

// The ranks of one job that meet in this process, and the backend they share.
// A world outlives its communicators.
// Thread-safe.
class World {
 public:
  static absl::StatusOr<std::shared_ptr<World>> Create(const WorldSpec& spec);
  virtual ~World() = default;

  virtual const WorldSpec& spec() const = 0;
  virtual Meeting* meeting() = 0;
  // The backend's table and the instance to pass to comm_create.
  virtual const commsched_backend_t* backend() const = 0;
  virtual void* backend_instance() = 0;

  // Takes a rank; kAlreadyExists while another holder lives. Give it back with
  // ReleaseRank.
  virtual absl::Status AcquireRank(int rank) = 0;
  virtual void ReleaseRank(int rank) = 0;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_WORLD_H_
