#include "test/conformance/rank_memory.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace commsched {

absl::StatusOr<std::unique_ptr<RankMemory>> RankMemory::Create(Device* device) {
  const bool on_host =
      device == nullptr || device->kind() == COMMSCHED_DEVICE_HOST;
  auto made = absl::WrapUnique(new RankMemory(on_host ? nullptr : device));
  if (on_host) return made;
  ASSIGN_OR_RETURN(made->stream_, device->CreateSideStream());
  ASSIGN_OR_RETURN(void* const room, device->Allocate(kRoomBytes));
  made->room_ = static_cast<std::byte*>(room);
  return made;
}

RankMemory::~RankMemory() {
  if (room_ != nullptr) device_->Free(room_);
}

absl::Status RankMemory::Add(Bytes* bytes) {
  if (device_ == nullptr) return absl::OkStatus();
  constexpr uint64_t kAlignment = 256;
  const uint64_t needed =
      (bytes->size() + kAlignment - 1) / kAlignment * kAlignment;
  if (needed > kRoomBytes - used_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("twins of memory of the host take more than ", kRoomBytes,
                     " bytes of a device"));
  }
  twins_.push_back({bytes, room_ + used_});
  used_ += needed;
  return Copy(twins_.back().twin, bytes->data(), bytes->size());
}

void* RankMemory::TwinOf(const void* address) const {
  if (device_ == nullptr || address == nullptr) {
    return const_cast<void*>(address);
  }
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Twin& each : twins_) {
    const uintptr_t offset =
        at - reinterpret_cast<uintptr_t>(each.bytes->data());
    if (offset < each.bytes->size()) return each.twin + offset;
  }
  return const_cast<void*>(address);  // What has no twin is refused by name.
}

absl::Status RankMemory::Fetch(Bytes* bytes) {
  if (device_ == nullptr) return absl::OkStatus();
  const auto found =
      std::find_if(twins_.begin(), twins_.end(),
                   [&](const Twin& each) { return each.bytes == bytes; });
  if (found == twins_.end()) return absl::NotFoundError("it has no twin");
  return Copy(bytes->data(), found->twin, bytes->size());
}

void RankMemory::ForgetAll() {
  twins_.clear();
  used_ = 0;
}

absl::Status RankMemory::Copy(void* to, const void* from, uint64_t bytes) {
  RowCopy copy;
  copy.to = to;
  copy.from = from;
  copy.row_bytes = bytes;
  stream_->Copy(copy);
  stream_->Synchronize();
  return device_->status();
}

}  // namespace commsched
