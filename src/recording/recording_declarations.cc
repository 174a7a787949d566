// The part of recording.h about what is declared, and taken away again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/host_device.h"
#include "recording/recording.h"

namespace commsched {

absl::Status Recording::CheckMayDeclare(uint32_t segment) const {
  if (in_step_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "recording: nothing can be declared inside step ", info_.steps));
  }
  if (segment >= segments_.size()) {
    return absl::NotFoundError(absl::StrCat("recording: segment ", segment,
                                            " does not exist; there are ",
                                            segments_.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> Recording::AddSegment(absl::string_view name) {
  RETURN_IF_ERROR(CheckMayDeclare(0));
  for (const std::string& segment : segments_) {
    if (segment == name) {
      return absl::AlreadyExistsError(
          absl::StrCat("recording: another segment is called '", name, "'"));
    }
  }
  // They and ranks share a word (FrozenStep::StepEnd).
  const uint64_t most =
      uint64_t{INT32_MAX} / static_cast<uint64_t>(spec_.world->spec().size) - 1;
  if (segments_.size() >= most) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "recording: segment '", name, "' exceeds the limit of ", most,
        " segments in a world of ", spec_.world->spec().size, " ranks"));
  }
  segments_.emplace_back(name);
  declared_since_ = true;
  return static_cast<uint32_t>(segments_.size() - 1);
}

absl::StatusOr<BufferId> Recording::AddBuffer(Buffer buffer, void* address) {
  RETURN_IF_ERROR(CheckMayDeclare(0));
  if (buffer.ownership == Ownership::kOwned) {
    return absl::InvalidArgumentError(
        absl::StrCat("recording: buffer '", buffer.name,
                     "' is OWNED, not BOUND or LATE_BOUND"));
  }
  RETURN_IF_ERROR(CheckAddress(buffer, address));
  ASSIGN_OR_RETURN(const BufferId id, declared_.AddBuffer(std::move(buffer)));
  addresses_.push_back(address);
  return id;
}

absl::Status Recording::CheckAddress(const Buffer& buffer,
                                     const void* address) const {
  const bool late = buffer.ownership == Ownership::kLateBound;
  if (late && address != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("recording: buffer '", buffer.name,
                     "' is LATE_BOUND, but has an address; each submit of a "
                     "collective that uses it brings one"));
  }
  const uint64_t size = DTypeSize(buffer.dtype);
  if ((address == nullptr && !late) ||
      reinterpret_cast<uintptr_t>(address) % size != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "recording: the address of buffer '", buffer.name, "' is ",
        address == nullptr ? "NULL" : "not aligned to its element size"));
  }
  if (late || !enqueues_) return absl::OkStatus();
  const absl::Status here =
      spec_.world->device(spec_.world_rank)->CheckHere(address);
  if (here.ok()) return here;
  return absl::Status(
      here.code(),
      absl::StrCat("recording: buffer '", buffer.name, "' ", here.message()));
}

absl::StatusOr<OpId> Recording::AddCompute(Op op, uint32_t segment) {
  RETURN_IF_ERROR(CheckMayDeclare(segment));
  if (!op.after.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("recording: op '", op.name, "' has ", op.after.size(),
                     " explicit dependencies; only the program's order and the "
                     "accesses order recorded ops"));
  }
  if (!spec_.lanes.empty() && op.compute.lane >= spec_.lanes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "recording: op '", op.name, "' is on lane ", op.compute.lane,
        ", but there are ", spec_.lanes.size(), " lanes"));
  }
  const uint32_t lane = op.compute.lane;
  ASSIGN_OR_RETURN(const OpId id, declared_.AddOp(std::move(op)));
  submissions_.Add(declared_.op(id));
  if (lane >= lanes_.size()) lanes_.resize(lane + 1, CallerStream());
  if (!spec_.lanes.empty()) lanes_[lane] = spec_.lanes[lane];
  declared_since_ = true;
  segment_.push_back(segment);
  alternative_.push_back(false);
  early_.push_back(false);
  tells_counts_.push_back(false);
  return id;
}

absl::StatusOr<OpId> Recording::AddCollective(Op op, uint32_t segment,
                                              RecordedCollective how) {
  RETURN_IF_ERROR(CheckMayDeclare(segment));
  if (!op.after.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("recording: collective '", op.name, "' has ",
                     op.after.size(), " explicit dependencies"));
  }
  const CollectiveKind kind = op.collective.kind;
  if (kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv) {
    return absl::UnimplementedError(
        absl::StrCat("recording: '", op.name,
                     "' is a send or a receive, which cannot run alone; use an "
                     "explicit graph"));
  }
  RETURN_IF_ERROR(CheckHow(op, how));
  ASSIGN_OR_RETURN(const OpId id, declared_.AddOp(std::move(op)));
  submissions_.Add(declared_.op(id));
  declared_since_ = true;
  segment_.push_back(segment);
  alternative_.push_back(how.alternative);
  early_.push_back(how.early);
  tells_counts_.push_back(how.tells_counts);
  return id;
}

absl::Status Recording::CheckMayChange(BufferId buffer) const {
  RETURN_IF_ERROR(CheckMayDeclare(0));
  const size_t declared = declared_.buffers().size();
  if (buffer.value() < declared && !declared_.IsClear(buffer)) {
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat(
      "recording: buffer ", buffer.value(),
      buffer.value() < declared ? std::string(" has been removed")
                                : absl::StrCat(" is not among the ", declared,
                                               " that were declared")));
}

absl::Status Recording::RemoveOp(uint32_t op) {
  RETURN_IF_ERROR(CheckMayDeclare(0));
  if (op >= declared_.ops().size()) {
    return absl::NotFoundError(
        absl::StrCat("recording: op ", op, " is not among the ",
                     declared_.ops().size(), " that were declared"));
  }
  if (declared_.IsClear(OpId(op))) {
    return absl::NotFoundError(
        absl::StrCat("recording: op ", op, " has been removed"));
  }
  declared_.ClearOp(OpId(op));
  submissions_.Remove(op);
  alternative_[op] = false;
  begins_anew_ = true;
  return absl::OkStatus();
}

absl::Status Recording::RemoveBuffer(BufferId buffer) {
  RETURN_IF_ERROR(CheckMayChange(buffer));
  for (const Op& op : declared_.ops()) {
    for (const Access& access : op.accesses) {
      if (access.buffer != buffer) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "recording: buffer '", declared_.buffer(buffer).name,
          "' is accessed by op '", op.name, "'; remove that first"));
    }
  }
  declared_.ClearBuffer(buffer);
  addresses_[buffer.value()] = nullptr;
  begins_anew_ = true;
  return absl::OkStatus();
}

absl::Status Recording::MoveBuffer(BufferId buffer, void* address) {
  RETURN_IF_ERROR(CheckMayChange(buffer));
  RETURN_IF_ERROR(CheckAddress(declared_.buffer(buffer), address));
  addresses_[buffer.value()] = address;
  begins_anew_ = true;
  return absl::OkStatus();
}

absl::Status Recording::CheckHow(const Op& op, RecordedCollective how) const {
  bool late = false;
  for (const Access* side : {&op.collective.input, &op.collective.output}) {
    const uint32_t buffer = side->buffer.value();
    late |= op.collective.kind != CollectiveKind::kBarrier &&
            buffer < declared_.buffers().size() &&
            declared_.buffer(side->buffer).ownership == Ownership::kLateBound;
  }
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("recording: collective '", op.name, "' ", why));
  };
  if (late && how.early) {
    return refuse("is EARLY, but its submit binds a LATE_BOUND buffer");
  }
  if (how.tells_counts && !late) {
    return refuse("tells its COUNTS, but uses no LATE_BOUND buffer");
  }
  if (how.tells_counts && how.alternative) {
    return refuse(
        "tells its COUNTS, so that it cannot be an ALTERNATIVE, which may go "
        "without this rank's data");
  }
  return absl::OkStatus();
}

RecordedOps Recording::Recorded() const {
  RecordedOps recorded;
  recorded.ops = &declared_;
  recorded.segment = segment_;
  recorded.alternative = alternative_;
  recorded.num_segments = static_cast<uint32_t>(segments_.size());
  return recorded;
}

}  // namespace commsched
