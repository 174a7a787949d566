// The dispatcher of a program that is enqueued on streams of a device: what it
// waits for between steps, and steps that are launches of a graph.
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "exec/dispatcher.h"

namespace commsched {

absl::Status Dispatcher::BeginOnDevice() {
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    absl::StatusOr<bool> capturing = lanes_[i]->IsCapturing();
    if (!capturing.ok()) {
      issuer_.Fail(capturing.status());
      return failure_.status();
    }
    if (!*capturing) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("step_begin: the stream of compute lane ", i,
                     " is capturing; a step is captured between "
                     "commsched_session_capture_begin() and capture_end()"));
  }
  RETURN_IF_ERROR(AwaitRoom());
  if (replays_ != nullptr) replays_->OrderPlain(steps());
  return absl::OkStatus();
}

// Until the device has got as far as run-ahead demands: what it still looks at
// is not touched.
absl::Status Dispatcher::AwaitRoom() {
  if (steps() < Program::kRunAhead) return absl::OkStatus();
  const uint64_t retired = steps() + 1 - Program::kRunAhead;
  if (replays_ != nullptr) replays_->Await(retired);
  for (const LaneEnd& end : lane_ends_) issuer_.Await(end.event, retired);
  issuer_.AwaitRetired(retired);
  return failure_.status();
}

absl::Status Dispatcher::ReplayBegin(Stream* stream) {
  if (failure_.failed()) return failure_.status();
  if (replays_ == nullptr) {
    return absl::FailedPreconditionError(
        "replay_begin: launches do not go out on streams of a device");
  }
  if (in_step()) {
    return absl::FailedPreconditionError(
        absl::StrCat("replay_begin: step ", named_step(), " has not ended"));
  }
  absl::StatusOr<bool> capturing = stream->IsCapturing();
  if (!capturing.ok()) {
    issuer_.Fail(capturing.status());
    return failure_.status();
  }
  if (*capturing) {
    return absl::FailedPreconditionError(
        "replay_begin: the stream is capturing, but the step is a launch of a "
        "graph that was captured before");
  }
  RETURN_IF_ERROR(AwaitRoom());
  if (!replays_->TakeTurns()) {
    return absl::FailedPreconditionError(
        "replay_begin: this thread launches the graph of another session on "
        "the device; its replay_end() comes first");
  }
  replays_->OrderReplay(stream, steps());
  // Whatever happens from here on, the work of the graph may be done.
  for (std::atomic<uint64_t>& state : state_) {
    state.store(Begun(generation()), std::memory_order_release);
  }
  in_replay_ = true;
  NoteBegun();
  return absl::OkStatus();
}

// The graph has done all that the calls of a step do.
absl::Status Dispatcher::ReplayEnd() {
  const absl::Cleanup give = [this] {
    if (replays_ != nullptr) replays_->GiveTurns();
  };
  if (failure_.failed()) return failure_.status();
  if (!in_replay_) {
    return absl::FailedPreconditionError(
        "replay_end: no launch of a graph has begun; replay_begin() comes "
        "first");
  }
  for (std::atomic<uint64_t>& state : state_) {
    state.store(Done(generation()), std::memory_order_release);
  }
  replays_->End(generation());
  head_.MoveTo(steps(), launches_per_step_);
  if (launches_per_step_ != 0) issuer_.MakeDue(head_.number(), 0);
  in_replay_ = false;
  steps_.store(steps() + 1, std::memory_order_relaxed);
  if (ranges_ != nullptr) ranges_->StepEnded();
  return absl::OkStatus();
}

}  // namespace commsched
