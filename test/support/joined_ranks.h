// Ranks that join a job as processes do, and are threads of a test.
#ifndef COMMSCHED_TEST_SUPPORT_JOINED_RANKS_H_
#define COMMSCHED_TEST_SUPPORT_JOINED_RANKS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/world.h"
#include "control/server.h"
#include "test/support/rank_group.h"

namespace commsched {

// A job of this machine, and the world of each of its ranks. Thread-compatible;
// WorldOf() and Meet() are for all ranks at once.
class JoinedRanks {
 public:
  JoinedRanks() = default;
  ~JoinedRanks() { Leave(); }
  JoinedRanks(const JoinedRanks&) = delete;
  JoinedRanks& operator=(const JoinedRanks&) = delete;

  // One after the other. `per_host`: so many ranks in a row say that they share
  // a host; 0: nobody says anything of hosts. After a failure those that have
  // joined are here.
  absl::Status Join(const WorldSpec& spec, int size, int per_host = 0) {
    ControlServerSpec server;
    server.size = size;
    ASSIGN_OR_RETURN(server_, ControlServer::Start(server));
    for (int rank = 0; rank < size; ++rank) {
      JobSpec job;
      job.environment.rank = rank;
      job.environment.size = size;
      job.environment.local_size = size;
      job.environment.server_host = "127.0.0.1";
      job.environment.server_port = server_->port();
      job.environment.rank_0_serves = false;
      if (per_host != 0) {
        job.environment.host_id = absl::StrCat("host", rank / per_host);
      }
      ASSIGN_OR_RETURN(std::shared_ptr<World> world, World::Join(spec, job));
      worlds_.push_back(std::move(world));
    }
    return absl::OkStatus();
  }

  // All at once, since who leaves waits for the others.
  void Leave() {
    RunRanks(size(), [&](int rank) {
      worlds_[static_cast<size_t>(rank)].reset();
      return absl::OkStatus();
    });
    worlds_.clear();
    server_.reset();
  }

  // Others keep them. The job's server stays.
  void ForgetWorlds() { worlds_.clear(); }

  int size() const { return static_cast<int>(worlds_.size()); }
  const std::shared_ptr<World>& WorldOf(int rank) const {
    return worlds_[static_cast<size_t>(rank)];
  }

  // Returns once all ranks have called it with this key.
  absl::Status Meet(const std::string& key, int rank) const {
    constexpr int64_t kLimitNs = int64_t{60} * 1000 * 1000 * 1000;
    return WorldOf(rank)
        ->meeting()
        ->AllGather(key, rank, "here", kLimitNs)
        .status();
  }

 private:
  std::unique_ptr<ControlServer> server_;
  std::vector<std::shared_ptr<World>> worlds_;
};

}  // namespace commsched

#endif  // COMMSCHED_TEST_SUPPORT_JOINED_RANKS_H_
