// Observer plugins of one session.
#ifndef COMMSCHED_SRC_EXEC_OBSERVERS_H_
#define COMMSCHED_SRC_EXEC_OBSERVERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "commsched/plugin.h"
#include "exec/program.h"

namespace commsched {

// Tells observers what was decided, then what the issuer does. Nothing that an
// observer returns or throws reaches the session: the first failure of each is
// logged, and CANCELLED detaches it from further events.
//
// Attach, and the destructor: one thread, while nothing is issued. All else:
// the issuing thread.
class Observers {
 public:
  Observers(const std::vector<const commsched_observer_t*>& tables,
            const Program& program, int world_rank, int world_size);
  ~Observers();
  Observers(const Observers&) = delete;
  Observers& operator=(const Observers&) = delete;

  // Launch `launch` of `step` has been taken by the backend.
  void Issued(uint32_t launch, uint64_t step, int64_t now_ns);
  // It is complete. `error` of one that is coded, else null.
  void Retired(uint32_t launch, uint64_t step, int64_t begin_ns, int64_t now_ns,
               const CodecError* error);
  // The session's first failure; later calls do nothing.
  void Failed(const absl::Status& failure, int64_t now_ns);

 private:
  // Steps with launches in flight are fewer: PolledMode::kMaxInFlight and one.
  static constexpr uint64_t kMaxSteps = 128;

  struct Attached {
    const commsched_observer_t* table = nullptr;
    void* observation = nullptr;
    uint32_t events = 0;  // 0: wants none any more
    bool failed = false;  // logged
  };

  void Describe(const Program& program, int world_rank, int world_size);
  void Attach(const commsched_observer_t* table);
  void Send(const commsched_observer_event_t& event);
  static void SendTo(Attached* observer,
                     const commsched_observer_event_t& event);

  // What the plugins' pointers point to; constant after construction.
  std::vector<std::string> texts_;
  std::vector<commsched_observed_launch_t> launches_;
  std::vector<const commsched_observed_launch_t*> pointers_;
  commsched_observed_plan_t plan_ = {};

  std::vector<Attached> attached_;
  uint32_t retired_[kMaxSteps] = {};  // launches, by step
  bool failed_ = false;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_OBSERVERS_H_
