// One rank's use of a backend table, as a host would.
#ifndef COMMSCHED_TEST_SUPPORT_COMM_DRIVER_H_
#define COMMSCHED_TEST_SUPPORT_COMM_DRIVER_H_

#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/parker.h"
#include "comm/backend_sleeper.h"
#include "comm/world.h"
#include "commsched/plugin.h"

namespace commsched {

struct CommSpec {
  std::string id = "comm";
  std::string axis = "dp";
  std::vector<int32_t> ranks = {};  // Empty: the whole world.
  uint32_t max_in_flight = 4;
  uint32_t max_members = 16;
};

// Owned by one thread, except Abort(). The world must outlive it.
class CommDriver {
 public:
  CommDriver() = default;
  ~CommDriver() { Destroy(); }
  CommDriver(const CommDriver&) = delete;
  CommDriver& operator=(const CommDriver&) = delete;

  absl::Status Create(World* world, CommSpec spec, int world_rank) {
    if (spec.ranks.empty()) {
      spec.ranks.resize(world->spec().size);
      std::iota(spec.ranks.begin(), spec.ranks.end(), 0);
    }
    table_ = world->backend();
    sleeper_.emplace(world, &parker_);
    commsched_comm_desc_t desc{};
    desc.struct_size = sizeof(desc);
    desc.id = spec.id.c_str();
    desc.axis = spec.axis.c_str();
    desc.ranks = spec.ranks.data();
    desc.size = static_cast<int32_t>(spec.ranks.size());
    desc.rank = 0;
    while (desc.rank < desc.size && spec.ranks[desc.rank] != world_rank) {
      ++desc.rank;
    }
    desc.world_rank = world_rank;
    desc.max_in_flight = spec.max_in_flight;
    desc.max_members = spec.max_members;
    desc.wake = [](void* user) { static_cast<Parker*>(user)->Unpark(); };
    desc.wake_user = &parker_;
    return Checked(table_->comm_create(world->backend_instance(), &desc, &comm_,
                                       message_, sizeof(message_)));
  }

  // `launch` and its members must stay until Wait() has returned.
  absl::Status Launch(const commsched_launch_t& launch, uint32_t request = 0) {
    return Checked(table_->launch(comm_, &launch, request,
                                  commsched_stream_caller(), message_,
                                  sizeof(message_)));
  }

  // One poll.
  absl::StatusOr<commsched_launch_result_t> Poll(uint32_t request = 0) {
    commsched_launch_result_t result{};
    const absl::Status status = Checked(
        table_->poll(comm_, request, &result, message_, sizeof(message_)));
    if (!status.ok()) return status;
    return result;
  }

  // Polls until done, parking in between.
  absl::StatusOr<commsched_launch_result_t> Wait(uint32_t request = 0) {
    commsched_launch_result_t result{};
    if (is_inline()) {
      result.done = 1;
      return result;
    }
    while (true) {
      absl::StatusOr<commsched_launch_result_t> polled = Poll(request);
      if (!polled.ok() || polled->done != 0) return polled;
      parker_.ParkUntil(polled->wake_at_ns == 0 ? kNoDeadlineNs
                                                : polled->wake_at_ns);
    }
  }

  absl::Status LaunchAndWait(const commsched_launch_t& launch) {
    const absl::Status launched = Launch(launch);
    return launched.ok() ? Wait().status() : launched;
  }

  // As comm_status says.
  absl::Status status() {
    return Checked(table_->comm_status(comm_, message_, sizeof(message_)));
  }

  // Group ranks that launch `request` waits for, as comm_missing says.
  std::vector<int32_t> Missing(uint32_t request = 0) {
    std::vector<int32_t> ranks(16);
    const uint32_t num_missing = table_->comm_missing(
        comm_, request, ranks.data(), static_cast<uint32_t>(ranks.size()));
    ranks.resize(num_missing);
    return ranks;
  }

  void Abort(commsched_status_t code, const char* message) {
    table_->comm_abort(comm_, code, message);
  }

  void Destroy() {
    if (comm_ != nullptr) table_->comm_destroy(comm_);
    comm_ = nullptr;
  }

  bool is_inline() const {
    return (table_->capabilities & COMMSCHED_BACKEND_INLINE) != 0;
  }

 private:
  absl::Status Checked(commsched_status_t code) const {
    if (code == COMMSCHED_OK) return absl::OkStatus();
    return absl::Status(static_cast<absl::StatusCode>(code), message_);
  }

  const commsched_backend_t* table_ = nullptr;
  void* comm_ = nullptr;
  Parker parker_;
  std::optional<BackendSleeper> sleeper_;
  char message_[1024] = {};
};

}  // namespace commsched

#endif  // COMMSCHED_TEST_SUPPORT_COMM_DRIVER_H_
