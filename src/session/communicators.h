// One communicator per group of a session.
#ifndef COMMSCHED_SRC_SESSION_COMMUNICATORS_H_
#define COMMSCHED_SRC_SESSION_COMMUNICATORS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "base/parker.h"
#include "comm/backend_sleeper.h"
#include "session/session_spec.h"

namespace commsched {

// Owns the communicators and destroys them with itself; then nothing may be in
// flight, unless they were aborted. When the world loses a rank, all are
// aborted.
//
// Thread-compatible.
class Communicators {
 public:
  explicit Communicators(std::shared_ptr<World> world);
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  // Creates one per group of `spec`, each for `requests` launches in flight.
  // `parker` is unparked when polling may have become useful, or sleeps in the
  // backend from now on.
  absl::Status Create(const SessionSpec& spec, uint32_t requests,
                      Parker* parker);

  // Makes memory known to every communicator, if the backend asks for that;
  // adds the number of registrations to `*counter`.
  absl::Status Register(void* address, uint64_t bytes, uint64_t* counter);

  const std::vector<void*>& comms() const { return comms_; }  // by GroupId

 private:
  class Aborter;

  const std::shared_ptr<World> world_;
  const commsched_backend_t* const backend_;
  std::vector<void*> comms_;
  std::shared_ptr<Aborter> aborter_;
  absl::optional<BackendSleeper> sleeper_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_COMMUNICATORS_H_
