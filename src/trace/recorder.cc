#include "trace/recorder.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace commsched {

Record HoldRecord(const Hold& hold, uint64_t step, uint32_t launch,
                  uint8_t lane) {
  const auto word = [](int64_t ns) {
    return static_cast<uint64_t>(
        std::clamp<int64_t>(ns, 0, std::numeric_limits<uint32_t>::max()));
  };
  return {.begin_ns = hold.ready_ns,
          .end_ns = hold.started_ns,
          .step = step,
          .value = word(hold.order_ns) << 32 | word(hold.cap_ns),
          .index = launch,
          .kind = RecordKind::kHold,
          .lane = lane};
}

Hold HoldOf(const Record& record) {
  return {.ready_ns = record.begin_ns,
          .started_ns = record.end_ns,
          .order_ns = static_cast<int64_t>(record.value >> 32),
          .cap_ns = static_cast<int64_t>(record.value & 0xffffffff)};
}

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Create(uint64_t capacity) {
  if (capacity < kMinCapacity || capacity > kMaxCapacity) {
    return absl::InvalidArgumentError(
        absl::StrCat("trace capacity is ", capacity, " records; it must be ",
                     kMinCapacity, "..", kMaxCapacity));
  }
  return std::make_unique<Recorder>(capacity);
}

Recorder::Recorder(uint64_t capacity)
    : mask_(std::bit_ceil(std::max<uint64_t>(capacity, 1)) - 1),
      ring_(std::make_unique<Slot[]>(mask_ + 1)) {}

void Recorder::SetNames(RecordNames names) { names_ = std::move(names); }

Record Recorder::Slot::Load() const {
  const uint64_t tail = Get(4);
  Record record;
  record.begin_ns = static_cast<int64_t>(Get(0));
  record.end_ns = static_cast<int64_t>(Get(1));
  record.step = Get(2);
  record.value = Get(3);
  record.index = static_cast<uint32_t>(tail);
  record.kind = static_cast<RecordKind>(static_cast<uint8_t>(tail >> 32));
  record.lane = static_cast<uint8_t>(tail >> 40);
  return record;
}

std::vector<Record> Recorder::Snapshot() const { return Held(false); }

std::vector<Record> Recorder::SnapshotOfHolds() const { return Held(true); }

std::vector<Record> Recorder::Held(bool holds) const {
  const uint64_t end = next_.load(std::memory_order_relaxed);
  const uint64_t begin = end > mask_ ? end - (mask_ + 1) : 0;
  std::vector<Record> records;
  records.reserve(end - begin);
  for (uint64_t i = begin; i < end; ++i) {
    Record record = ring_[i & mask_].Load();
    if ((record.kind == RecordKind::kHold) != holds) continue;
    if (record.kind == RecordKind::kStepBegin) {
      record.end_ns = record.begin_ns;
    }
    if (record.end_ns >= record.begin_ns) records.push_back(record);
  }
  std::stable_sort(
      records.begin(), records.end(),
      [](const Record& a, const Record& b) { return a.begin_ns < b.begin_ns; });
  return records;
}

}  // namespace commsched
