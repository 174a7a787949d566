// How many events and streams this process has made.
#ifndef COMMSCHED_SRC_DEVICE_DEVICE_COUNTERS_H_
#define COMMSCHED_SRC_DEVICE_DEVICE_COUNTERS_H_

#include <atomic>
#include <cstdint>

namespace commsched {

// Creations since the process began, so that a test can show that a
// steady-state step makes none (I6). Thread-safe.
struct DeviceCounters {
  std::atomic<uint64_t> events_created{0};
  std::atomic<uint64_t> streams_created{0};
};

inline DeviceCounters& GlobalDeviceCounters() {
  static constinit DeviceCounters counters;
  return counters;
}

}  // namespace commsched

#endif  // COMMSCHED_SRC_DEVICE_DEVICE_COUNTERS_H_
