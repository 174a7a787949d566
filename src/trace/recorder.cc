#include "trace/recorder.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace commsched {
namespace {

uint64_t DurationsWord(int64_t order, int64_t cap) {
  const auto half = [](int64_t duration) {
    return static_cast<uint64_t>(
        std::clamp<int64_t>(duration, 0, std::numeric_limits<uint32_t>::max()));
  };
  return half(order) << 32 | half(cap);
}

}  // namespace

Record HoldRecord(const Hold& hold, uint64_t step, uint32_t launch,
                  uint8_t lane) {
  return {.begin_ns = hold.ready_ns,
          .end_ns = hold.started_ns,
          .step = step,
          .value = DurationsWord(hold.order_ns, hold.cap_ns),
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

Record StartRecord(const Start& start, uint64_t step, uint32_t launch) {
  const uint64_t error = static_cast<uint64_t>(std::clamp<int64_t>(
      start.error_ns, 0, std::numeric_limits<uint32_t>::max()));
  return {.begin_ns = start.started_ns,
          .end_ns = start.started_ns,
          .step = step,
          .value = error << 32 | static_cast<uint32_t>(start.last_rank),
          .index = launch,
          .kind = RecordKind::kStart};
}

Start StartOf(const Record& record) {
  return {.started_ns = record.begin_ns,
          .error_ns = static_cast<int64_t>(record.value >> 32),
          .last_rank = static_cast<int>(static_cast<uint32_t>(record.value))};
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

Recorder::ChannelIds Recorder::AddChannel(
    int rank, int world_size,
    const std::vector<RecordNames::LaunchName>& kinds) {
  if (names_.ops.empty() && names_.launches.empty()) {
    names_.rank = rank;
    names_.world_size = world_size;
  }
  const ChannelIds ids = {static_cast<uint32_t>(channel_names_.size()),
                          num_channels_++};
  channel_names_.insert(channel_names_.end(), kinds.begin(), kinds.end());
  return ids;
}

const RecordNames::LaunchName* Recorder::LaunchNameOf(
    const Record& record) const {
  if (record.kind != RecordKind::kLaunch &&
      record.kind != RecordKind::kChannel) {
    return nullptr;
  }
  const auto& names =
      record.kind == RecordKind::kLaunch ? names_.launches : channel_names_;
  return record.index < names.size() ? &names[record.index] : nullptr;
}

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

std::vector<Record> Recorder::Snapshot() const {
  return Held(Wanted::kIntervals);
}

std::vector<Record> Recorder::SnapshotOfHolds() const {
  return Held(Wanted::kHolds);
}

std::vector<Record> Recorder::SnapshotOfStarts() const {
  return Held(Wanted::kStarts);
}

std::vector<Record> Recorder::SnapshotOfChannels() const {
  return Held(Wanted::kChannels);
}

Recorder::Wanted Recorder::WantedBy(RecordKind kind) {
  switch (kind) {
    case RecordKind::kHold:
      return Wanted::kHolds;
    case RecordKind::kStart:
      return Wanted::kStarts;
    case RecordKind::kChannel:
      return Wanted::kChannels;
    case RecordKind::kStepBegin:
    case RecordKind::kCompute:
    case RecordKind::kLaunch:
    case RecordKind::kWait:
      break;
  }
  return Wanted::kIntervals;
}

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
  return HeldIn(begin, end, Wanted::kIntervals);
}

std::vector<Record> Recorder::Held(Wanted wanted) const {
  const uint64_t end = next_.load(std::memory_order_relaxed);
  return HeldIn(end > mask_ ? end - (mask_ + 1) : 0, end, wanted);
}

std::vector<Record> Recorder::HeldIn(uint64_t begin, uint64_t end,
                                     Wanted wanted) const {
  std::vector<Record> records;
  records.reserve(end - begin);
  for (uint64_t i = begin; i < end; ++i) {
    const Slot& slot = ring_[i & mask_];
    if (slot.is_filled()) records.push_back(slot.Load());
  }
  for (Record& record : records) {
    if (record.kind == RecordKind::kStepBegin) record.end_ns = record.begin_ns;
  }
  std::erase_if(records, [&](const Record& record) {
    if (WantedBy(record.kind) != wanted) return true;
    return wanted == Wanted::kIntervals && record.end_ns < record.begin_ns;
  });
  std::stable_sort(
      records.begin(), records.end(),
      [](const Record& a, const Record& b) { return a.begin_ns < b.begin_ns; });
  return records;
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

}  // namespace commsched
