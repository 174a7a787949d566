#ifndef COMMSCHED_SRC_TRACE_RECORDER_H_
#define COMMSCHED_SRC_TRACE_RECORDER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace commsched {

enum class RecordKind : uint8_t {
  kStepBegin,  // begin_ns only
  kCompute,    // [before returned, after called] of a compute op
  kLaunch,     // [lane's waits met, complete] of a launch
  kWait,       // host time blocked in `before`
};

// One interval. 40 bytes, written once.
struct Record {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t step = 0;
  uint64_t value = 0;  // kLaunch: bytes in flight, itself included, at issue
  uint32_t index = 0;  // op id, or launch id
  RecordKind kind = RecordKind::kStepBegin;
  uint8_t lane = 0;    // compute lane or communication lane
};

// Names for the records of one plan, set once when a session binds.
struct RecordNames {
  struct LaunchName {
    std::string name;        // "reduce_scatter grad.0+grad.1"
    std::string collective;  // "_reduce_scatter_base"
    std::string dtype;
    std::string axis;
    std::vector<int> ranks;  // world ranks of the group
    uint64_t input_count = 0, output_count = 0, bytes = 0;
    uint32_t num_members = 1;
  };
  int rank = 0;
  int world_size = 1;
  std::vector<std::string> ops;  // by op id
  std::vector<LaunchName> launches;
};

// A ring of records of one rank, oldest overwritten. Add takes no lock and
// allocates nothing; it may be called from several threads at once. Reading is
// for when nobody adds.
class Recorder {
 public:
  static absl::StatusOr<std::unique_ptr<Recorder>> Create(uint64_t capacity);
  explicit Recorder(uint64_t capacity);

  void Add(const Record& record);  // slot by fetch_add

  void SetNames(RecordNames names);
  const RecordNames& names() const { return names_; }
  // Held records, oldest first, sorted by begin_ns.
  std::vector<Record> Snapshot() const;

 private:
  std::vector<Record> ring_;
  const uint64_t mask_;
  std::atomic<uint64_t> next_{0};
  RecordNames names_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_RECORDER_H_
