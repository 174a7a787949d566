// A stream of a device on which launches of a channel wait for each other.
#ifndef COMMSCHED_SRC_CHANNEL_DEVICE_LINE_H_
#define COMMSCHED_SRC_CHANNEL_DEVICE_LINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "channel/channel_launch.h"
#include "comm/lane_order.h"
#include "comm/turn.h"
#include "device/device.h"

namespace commsched {

// A request, which on a device is one launch. It stays where it is and is used
// again, so that whoever waits needs nothing but `done` and the generation.
struct DeviceLaunch {
  ChannelLaunch launch;
  uint64_t number = 0;  // of the request, from 1
  uint64_t user = 0;
  // Counts how often this has been used: of both events.
  uint64_t generation = 0;
  // Behind the work of the caller's stream that what it reads is written by.
  std::unique_ptr<Event> input;
  bool has_input = false;
  std::unique_ptr<Event> done;  // behind it
  // The generation in which `done` has been recorded last. Released by who
  // enqueues, acquired by who has a stream wait.
  std::atomic<uint64_t> enqueued{0};
  DeviceLaunch* next = nullptr;  // in the list that it is in
};

// Launches in the order in which they were put in.
class DeviceLaunchList {
 public:
  DeviceLaunch* first() const { return first_; }
  void Append(DeviceLaunch* launch) {
    launch->next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = launch;
    last_ = launch;
  }
  // The first, which there is.
  DeviceLaunch* Pop() {
    DeviceLaunch* const popped = first_;
    first_ = popped->next;
    return popped;
  }

 private:
  DeviceLaunch* first_ = nullptr;
  DeviceLaunch* last_ = nullptr;
};

// What launches are enqueued on.
struct DeviceRoad {
  void* comm = nullptr;
  Stream* stream = nullptr;
  // Held for one launch; null: nobody else launches on the stream.
  Turn* turn = nullptr;
  LaneOrder* order = nullptr;  // null: as `turn`
  LaneQueue* queue = nullptr;  // null: its order is no matter of all members
};

// Launches that go out in the order of their submits, and whose ends are in
// that order.
struct DeviceLine {
  // Constant once others know of the line.
  DeviceRoad road;
  uint32_t lane = 0;       // of the watchdog
  std::vector<int> ranks;  // world ranks that take part
  uint32_t capacity = 0;   // launches that are on the stream and have not ended
  uint64_t max_bytes = 0;  // of those, as far as there are several; 0: any

  // Launches go out. Released by the monitor.
  std::atomic<bool> is_connected{false};
  // Held by who puts a launch in, or takes it from `queued` to the stream.
  Turn submits;
  // Held by who finishes what has ended.
  Turn ends;

  // With the queue's mutex.
  DeviceLaunchList queued;  // not on the stream
  DeviceLaunchList posted;  // on it, or about to be
  uint32_t num_posted = 0;
  uint64_t bytes_posted = 0;

  // The monitor's.
  uint64_t watched = 0;  // the request whose time runs; 0: none
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CHANNEL_DEVICE_LINE_H_
