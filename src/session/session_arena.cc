#include "session/session_arena.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "comm/backend_rank.h"
#include "comm/plugin/table_support.h"
#include "device/device.h"

namespace commsched {
namespace {

absl::Status CheckGiven(Device* device, const void* address) {
  if (address == nullptr) {
    return absl::InvalidArgumentError("session: the allocator gave NULL");
  }
  if (reinterpret_cast<uintptr_t>(address) % SessionArena::kAlignment != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("session: the allocator gave %p, which is not aligned "
                        "to %u bytes",
                        address, SessionArena::kAlignment));
  }
  const absl::Status here = device->CheckHere(address);
  if (here.ok()) return here;
  return absl::Status(
      here.code(),
      absl::StrCat("session: what the allocator gave ", here.message()));
}

}  // namespace

SessionArena::~SessionArena() {
  if (address_ != nullptr) release_(address_);
}

absl::StatusOr<void*> SessionArena::Try(const Source& source,
                                        const Allocator& allocator,
                                        uint64_t bytes) {
  absl::StatusOr<void*> address = source(bytes);
  if (!absl::IsResourceExhausted(address.status()) || !allocator.trim) {
    return address;
  }
  allocator.trim();
  ++retries_;
  return source(bytes);
}

absl::Status SessionArena::Allocate(const SessionSpec& spec, uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  bytes_ = bytes;
  if (spec.allocator.allocate) return AllocateByCaller(spec, bytes);
  if (spec.world->backend()->mem_alloc != nullptr) {
    return AllocateByBackend(spec, bytes);
  }
  Device* const device = spec.world->device(spec.world_rank);
  release_ = [device](void* address) { device->Free(address); };
  ASSIGN_OR_RETURN(
      address_, Try([device](uint64_t size) { return device->Allocate(size); },
                    spec.allocator, bytes));
  return absl::OkStatus();
}

absl::Status SessionArena::AllocateByCaller(const SessionSpec& spec,
                                            uint64_t bytes) {
  release_ = [release = spec.allocator.release, bytes](void* address) {
    release(address, bytes);
  };
  ASSIGN_OR_RETURN(void* const address,
                   Try(spec.allocator.allocate, spec.allocator, bytes));
  const absl::Status given =
      CheckGiven(spec.world->device(spec.world_rank), address);
  if (!given.ok()) {
    if (address != nullptr) release_(address);
    return given;
  }
  address_ = address;
  return absl::OkStatus();
}

absl::Status SessionArena::AllocateByBackend(const SessionSpec& spec,
                                             uint64_t bytes) {
  ASSIGN_OR_RETURN(BackendRank* const rank, spec.world->Rank(spec.world_rank));
  release_ = [rank](void* address) {
    const BackendRank::Turn turn(rank);
    rank->table().mem_free(rank->handle(), address);
  };
  const auto source = [rank](uint64_t size) -> absl::StatusOr<void*> {
    const BackendRank::Turn turn(rank);
    PluginMessage message;
    void* address = nullptr;
    const commsched_status_t code = rank->table().mem_alloc(
        rank->handle(), size, &address, message.Begin(), PluginMessage::size());
    if (code == COMMSCHED_OK) return address;
    return BackendFailure(rank->table(), "mem_alloc", code, message);
  };
  ASSIGN_OR_RETURN(address_, Try(source, spec.allocator, bytes));
  return absl::OkStatus();
}

}  // namespace commsched
