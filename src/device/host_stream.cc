#include <pthread.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/parker.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "device/device_counters.h"
#include "device/host_device.h"
#include "device/waitable_counter.h"

namespace commsched {
namespace {

constexpr uint32_t kMaxCapacity = 65536;
constexpr size_t kMaxThreadName = 15;  // Linux.

// What is in a slot of the ring.
struct Item {
  enum class Kind { kFunction, kWait, kRecord, kStop };

  Kind kind = Kind::kStop;
  HostStream::Function function = nullptr;
  void* user = nullptr;
  Event* event = nullptr;
  uint64_t generation = 0;
};

// Each item has a position, taken by one fetch_add. Its slot, position modulo
// the size of the ring, is free once the item that was there has run. So the
// number of items that have run is all that a full ring and Synchronize() wait
// for.
class HostStreamImpl final : public HostStream {
 public:
  // One slot more than `capacity`: the item that runs is not queued.
  HostStreamImpl(std::string name, uint32_t capacity)
      : name_(std::move(name)),
        num_slots_(capacity + 1),
        slots_(std::make_unique<Slot[]>(num_slots_)) {}

  ~HostStreamImpl() override {
    if (!worker_.joinable()) return;
    Push(Item{});
    worker_.join();
  }

  // Separate from construction, as it can fail.
  absl::Status Start() {
    ASSIGN_OR_RETURN(
        worker_, StartThread(absl::StrCat("the thread of stream '", name_, "'"),
                             [this] { RunWorker(); }));
    return absl::OkStatus();
  }

  void Enqueue(Function function, void* user) override {
    Item item;
    item.kind = Item::Kind::kFunction;
    item.function = function;
    item.user = user;
    Push(item);
  }

  void Wait(Event* event, uint64_t generation) override {
    PushEvent(Item::Kind::kWait, event, generation);
  }

  void Record(Event* event, uint64_t generation) override {
    PushEvent(Item::Kind::kRecord, event, generation);
  }

  void Synchronize() override {
    // Items whose Push() returned before this call have their positions below.
    num_run_.WaitFor(next_position_.load(std::memory_order_acquire));
  }

  bool is_caller() const override { return false; }

 private:
  struct Slot {
    // Position + 1 of the item that is there. Released in Push(), acquired in
    // Pop().
    std::atomic<uint64_t> filled{0};
    Item item;
  };

  void PushEvent(Item::Kind kind, Event* event, uint64_t generation) {
    Item item;
    item.kind = kind;
    item.event = event;
    item.generation = generation;
    Push(item);
  }

  void Push(const Item& item) {
    const uint64_t position =
        next_position_.fetch_add(1, std::memory_order_acq_rel);
    if (position >= num_slots_) num_run_.WaitFor(position - num_slots_ + 1);
    Slot& slot = slots_[position % num_slots_];
    slot.item = item;
    slot.filled.store(position + 1, std::memory_order_release);
    parker_.Unpark();
  }

  Item Pop(uint64_t position) {
    Slot& slot = slots_[position % num_slots_];
    while (slot.filled.load(std::memory_order_acquire) != position + 1) {
      parker_.Park();
    }
    return slot.item;
  }

  void RunWorker() {
    pthread_setname_np(pthread_self(), name_.substr(0, kMaxThreadName).c_str());
    for (uint64_t position = 0;; ++position) {
      const Item item = Pop(position);
      if (item.kind == Item::Kind::kStop) return;
      Run(item);
      num_run_.AdvanceTo(position + 1);
    }
  }

  static void Run(const Item& item) {
    switch (item.kind) {
      case Item::Kind::kFunction:
        item.function(item.user);
        break;
      case Item::Kind::kWait:
        item.event->Synchronize(item.generation);
        break;
      case Item::Kind::kRecord:
        item.event->Complete(item.generation);
        break;
      case Item::Kind::kStop:
        break;
    }
  }

  // Constant after construction.
  const std::string name_;
  const uint64_t num_slots_;
  const std::unique_ptr<Slot[]> slots_;

  std::atomic<uint64_t> next_position_{0};
  WaitableCounter num_run_;
  Parker parker_;  // Of the worker.

  std::thread worker_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HostStream>> HostStream::Create(
    absl::string_view name, uint32_t capacity) {
  if (capacity < 1 || capacity > kMaxCapacity) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream '", name, "' has capacity ", capacity,
                     "; it must be 1..", kMaxCapacity));
  }
  auto stream = std::make_unique<HostStreamImpl>(
      std::string(name.data(), name.size()), capacity);
  if (absl::Status started = stream->Start(); !started.ok()) return started;
  GlobalDeviceCounters().streams_created.fetch_add(1,
                                                   std::memory_order_relaxed);
  return std::unique_ptr<HostStream>(std::move(stream));
}

}  // namespace commsched
