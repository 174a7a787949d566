// Streams without threads, so that one thread can run a whole job in any order.
#ifndef COMMSCHED_TEST_SUPPORT_VIRTUAL_DEVICE_H_
#define COMMSCHED_TEST_SUPPORT_VIRTUAL_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "device/device.h"

namespace commsched::test {

// A worker's stream whose worker is the test: a queue of which the test runs
// the head when it likes and the head is ready. Takes the events of the host
// device. Enqueuing never blocks.
//
// One thread.
class VirtualStream final : public Stream {
 public:
  void Wait(Event* event, uint64_t generation) override {
    items_.push_back({Item::Kind::kWait, event, generation, nullptr});
  }
  void Record(Event* event, uint64_t generation) override {
    items_.push_back({Item::Kind::kRecord, event, generation, nullptr});
  }
  void Enqueue(std::function<void()> work) {
    items_.push_back({Item::Kind::kWork, nullptr, 0, std::move(work)});
  }
  bool is_caller() const override { return false; }

  // Runs everything. A head that is not ready ends the process: the thread that
  // could make it so is this one.
  void Synchronize() override;

  // Whether there is a head, and it waits for nothing that is not complete.
  bool ready() const;
  // Runs the head, which is ready().
  void RunHead();
  // Forgets the head, unrun.
  void DropHead() { items_.pop_front(); }
  size_t num_queued() const { return items_.size(); }

 private:
  struct Item {
    enum class Kind { kWait, kRecord, kWork };
    Kind kind;
    Event* event;
    uint64_t generation;
    std::function<void()> work;
  };
  std::deque<Item> items_;
};

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_VIRTUAL_DEVICE_H_
