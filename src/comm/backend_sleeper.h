#ifndef COMMSCHED_SRC_COMM_BACKEND_SLEEPER_H_
#define COMMSCHED_SRC_COMM_BACKEND_SLEEPER_H_

#include <cstdint>

#include "base/parker.h"
#include "comm/world.h"

namespace commsched {

// Lets the owner of a parker sleep in the world's backend, if that has a way
// (commsched_backend_t::wait). Outlives the parker's use; the world outlives
// it.
//
// Thread-safe after construction.
class BackendSleeper {
 public:
  BackendSleeper(World* world, Parker* parker)
      : backend_(world->backend()), instance_(world->backend_instance()) {
    if (backend_->wait == nullptr) return;
    parker->SetSleeper({.user = this, .sleep = &Sleep, .wake = &Wake});
  }
  BackendSleeper(const BackendSleeper&) = delete;
  BackendSleeper& operator=(const BackendSleeper&) = delete;

 private:
  static void Sleep(void* user, int64_t deadline_ns) {
    auto* self = static_cast<BackendSleeper*>(user);
    self->backend_->wait(self->instance_, &self->interrupts_, deadline_ns);
  }
  static void Wake(void* user) {
    auto* self = static_cast<BackendSleeper*>(user);
    self->backend_->interrupt(self->instance_);
  }

  const commsched_backend_t* const backend_;
  void* const instance_;
  uint64_t interrupts_ = 0;  // That the owner has seen; the owner's.
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_BACKEND_SLEEPER_H_
