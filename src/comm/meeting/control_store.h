#ifndef COMMSCHED_SRC_COMM_MEETING_CONTROL_STORE_H_
#define COMMSCHED_SRC_COMM_MEETING_CONTROL_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/failure_board.h"
#include "comm/meeting/value_store.h"
#include "control/client.h"

namespace commsched {

// At the control server, under keys of a world's own. Thread-safe.
class ControlStore final : public ValueStore {
 public:
  // `client` outlives the store. Get() fails when a rank of `part` is gone, and
  // is not told of others.
  ControlStore(ControlClient* client, std::shared_ptr<const JobPart> part)
      : client_(client), part_(std::move(part)) {}

  absl::Status Put(const std::string& key, const std::string& value) override {
    return Named(client_->Put(part_->KeyOf(key), value, kPutNs));
  }
  absl::StatusOr<std::string> Get(const std::string& key,
                                  int64_t timeout_ns) override {
    auto value = client_->Get(part_->members(), part_->KeyOf(key), timeout_ns);
    if (!value.ok()) return Named(value.status());
    return value;
  }

 private:
  // How long a rank waits for the server to take a value.
  static constexpr int64_t kPutNs = int64_t{60} * 1000 * 1000 * 1000;

  // The server says which rank of the job it was.
  absl::Status Named(const absl::Status& status) const {
    return part_->Named(status, "in the job, ");
  }

  ControlClient* const client_;
  const std::shared_ptr<const JobPart> part_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_MEETING_CONTROL_STORE_H_
