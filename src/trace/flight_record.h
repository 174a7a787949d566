// What a rank did last, in a file that survives it.
#ifndef COMMSCHED_SRC_TRACE_FLIGHT_RECORD_H_
#define COMMSCHED_SRC_TRACE_FLIGHT_RECORD_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace commsched {

enum class FlightEvent : uint32_t {
  kStepBegin,  // number: the step
  kDue,        // launches below number are due
  kIssue,      // of launch number (over all steps), as the next three
  kStart,      // all had issued it; not of backends that learn that later
  kComplete,   // the backend says so
  kRetire,     // its event is complete
  kFail,       // the session has failed
};

// What a flight record says of its rank, once.
struct FlightInfo {
  int rank = 0;
  std::array<uint8_t, 16> fingerprint = {};  // of the plan
  std::vector<std::string> launches;         // names, in key order
};

// A ring of records in a mapped file: adding one is a few stores, the kernel
// keeps them though the process is killed. A machine that goes down takes them
// along.
//
// Add: any thread. Fail: one thread.
class FlightRecord {
 public:
  static constexpr uint64_t kCapacity = 8192;  // records
  static constexpr size_t kMaxMessage = 1024;

  // Makes or replaces the file. kUnavailable if that fails, naming the path.
  static absl::StatusOr<std::unique_ptr<FlightRecord>> Create(
      const std::string& path, const FlightInfo& info);
  ~FlightRecord();
  FlightRecord(const FlightRecord&) = delete;
  FlightRecord& operator=(const FlightRecord&) = delete;

  void Add(FlightEvent event, uint64_t number, int64_t now_ns) {
    const uint64_t position = head_->fetch_add(1, std::memory_order_relaxed);
    Slot& slot = ring_[position % kCapacity];
    // A reader takes a slot whose position is that of its place: one that is
    // half written has none.
    slot.position.store(0, std::memory_order_relaxed);
    // Release: none of it is seen without the 0 before.
    slot.time_ns.store(static_cast<uint64_t>(now_ns),
                       std::memory_order_release);
    slot.number.store(number, std::memory_order_release);
    slot.event.store(static_cast<uint64_t>(event), std::memory_order_release);
    slot.position.store(position + 1, std::memory_order_release);
  }

  // Keeps the failure's message, cut to kMaxMessage bytes.
  void Fail(absl::string_view message, int64_t now_ns);

 private:
  // As in the file.
  struct Slot {
    std::atomic<uint64_t> time_ns, number, event, position;
  };
  static_assert(sizeof(Slot) == 32);

  FlightRecord(void* map, size_t bytes, size_t ring_offset);

  void* const map_;
  const size_t bytes_;
  std::atomic<uint64_t>* const head_;
  Slot* const ring_;
};

// A record, read back.
struct FlightLog {
  struct Entry {
    int64_t time_ns = 0;
    uint64_t number = 0;  // as FlightEvent says
    FlightEvent event = FlightEvent::kStepBegin;
  };
  int64_t rank = 0;
  std::array<uint8_t, 16> fingerprint = {};
  std::vector<std::string> launches;  // names, in key order
  uint64_t num_events = 0;            // ever
  std::string failure;                // "": none
  std::vector<Entry> events;          // those that are held, oldest first

  std::string FingerprintText() const;
  // Of launch `number` over all steps: "#1 all_reduce 'g' ... of step 7".
  std::string LaunchName(uint64_t number) const;
};

// The record of `path`, also while it is written: what is half written is left
// out. Trusts nothing in the file. kUnavailable if it cannot be read,
// kInvalidArgument if it is no flight record.
absl::StatusOr<FlightLog> LoadFlightRecord(const std::string& path);

// The record of `path` as text: the rank, what was in flight, the failure, and
// the last events. Fails as LoadFlightRecord().
absl::StatusOr<std::string> ReadFlightRecord(const std::string& path);

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_FLIGHT_RECORD_H_
