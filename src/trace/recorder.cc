#include "trace/recorder.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace commsched {
namespace {

// A hold's durations in ticks are kept as fours of them.
constexpr int kTicksShift = 2;

uint64_t DurationsWord(int64_t order, int64_t cap) {
  const auto half = [](int64_t duration) {
    return static_cast<uint64_t>(
        std::clamp<int64_t>(duration, 0, std::numeric_limits<uint32_t>::max()));
  };
  return half(order) << 32 | half(cap);
}

}  // namespace

Record HoldRecord(const Hold& hold, uint64_t step, uint32_t launch,
                  uint8_t lane, bool in_ticks) {
  const int shift = in_ticks ? kTicksShift : 0;
  return {.begin_ns = hold.ready_ns,
          .end_ns = hold.started_ns,
          .step = step,
          .value = DurationsWord(hold.order_ns >> shift, hold.cap_ns >> shift),
          .index = launch,
          .kind = RecordKind::kHold,
          .lane = lane,
          .in_ticks = in_ticks};
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
      ring_(std::make_unique<Slot[]>(mask_ + 1)),
      made_(HasTicks() ? ReadTickAnchor() : TickAnchor{}) {}

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
  record.in_ticks = (tail >> 48 & 1) != 0;
  return record;
}

std::vector<Record> Recorder::Snapshot() const { return Held(false); }

std::vector<Record> Recorder::SnapshotOfHolds() const { return Held(true); }

// A writer may use up a block that it took some steps before: one that adds at
// least a record per step has done so kBlock steps later.
std::vector<Record> Recorder::SnapshotOfLast(uint64_t steps) const {
  const uint64_t end = next_.load(std::memory_order_relaxed);
  const uint64_t oldest = end > mask_ ? end - (mask_ + 1) : 0;
  uint64_t begin = end;
  for (uint64_t begins = 0; begin > oldest && begins < steps + kBlock;) {
    const Slot& slot = ring_[--begin & mask_];
    if (slot.is_filled() && slot.Load().kind == RecordKind::kStepBegin) {
      ++begins;
    }
  }
  return HeldIn(begin, end, /*holds=*/false);
}

std::vector<Record> Recorder::Held(bool holds) const {
  const uint64_t end = next_.load(std::memory_order_relaxed);
  return HeldIn(end > mask_ ? end - (mask_ + 1) : 0, end, holds);
}

std::vector<Record> Recorder::HeldIn(uint64_t begin, uint64_t end,
                                     bool holds) const {
  std::vector<Record> records;
  records.reserve(end - begin);
  for (uint64_t i = begin; i < end; ++i) {
    const Slot& slot = ring_[i & mask_];
    if (slot.is_filled()) records.push_back(slot.Load());
  }
  const TickLine line = LineThrough(records);
  for (Record& record : records) {
    if (record.kind == RecordKind::kStepBegin) {
      record.end_ns = record.begin_ns;
      record.value = 0;
    }
    if (record.in_ticks) ToNs(line, &record);
  }
  std::erase_if(records, [&](const Record& record) {
    const bool is_hold = record.kind == RecordKind::kHold;
    return is_hold != holds || (!is_hold && record.end_ns < record.begin_ns);
  });
  std::stable_sort(
      records.begin(), records.end(),
      [](const Record& a, const Record& b) { return a.begin_ns < b.begin_ns; });
  return records;
}

void Recorder::ToNs(const TickLine& line, Record* record) {
  const int64_t begin = record->begin_ns;
  record->begin_ns = line.ToNs(begin);
  record->in_ticks = false;
  if (record->kind == RecordKind::kHold) {
    const Hold hold = HoldOf(*record);
    const auto to_ns = [&](int64_t fours) {
      return line.ToNs(begin + (fours << kTicksShift)) - record->begin_ns;
    };
    record->value = DurationsWord(to_ns(hold.order_ns), to_ns(hold.cap_ns));
    return;
  }
  record->end_ns = line.ToNs(record->end_ns);
  // Two threads that take turns may read the counter a little early each.
  if (record->begin_ns - record->end_ns <= kTicksErrorNs) {
    record->end_ns = std::max(record->begin_ns, record->end_ns);
  }
}

void Recorder::Writer::TakeBlock() {
  const uint64_t size = std::min(kBlock, recorder_->mask_ + 1);
  next_ = recorder_->next_.fetch_add(size, std::memory_order_relaxed);
  end_ = next_ + size;
  for (uint64_t i = next_; i < end_; ++i) {
    recorder_->ring_[i & recorder_->mask_].Clear();
  }
}

void Recorder::Writer::CatchUp() {
  const uint64_t taken = recorder_->next_.load(std::memory_order_relaxed);
  if (taken - next_ > recorder_->mask_ / 2) next_ = end_;
}

TickLine Recorder::LineThrough(const std::vector<Record>& records) const {
  std::vector<TickAnchor> anchors;
  if (HasTicks()) anchors = {made_, ReadTickAnchor()};
  for (const Record& record : records) {
    if (record.kind != RecordKind::kStepBegin || record.value == 0) continue;
    anchors.push_back(
        {.ticks = static_cast<int64_t>(record.value), .ns = record.begin_ns});
  }
  return TickLine(std::move(anchors));
}

}  // namespace commsched
