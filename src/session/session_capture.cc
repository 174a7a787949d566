// Steps that are captured into a graph, and launches of that graph.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "exec/step_capture.h"
#include "session/session.h"

namespace commsched {
namespace {

absl::Status CheckStream(const Stream& stream, absl::string_view call) {
  if (stream.is_device()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(call, ": the stream is not one of a CUDA device"));
}

}  // namespace

absl::Status Session::CaptureBegin(Stream* origin) {
  RETURN_IF_ERROR(status());
  RETURN_IF_ERROR(CheckStream(*origin, "capture_begin"));
  RETURN_IF_ERROR(CheckNotCapturing("capture_begin"));
  if (parts_.spec.by_caller) {
    return absl::UnimplementedError(
        "capture_begin: progress is the caller's, so that nobody would look "
        "after launches of the graph; use COMMSCHED_PROGRESS_THREAD");
  }
  if (dispatcher_->in_step()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "capture_begin: step ", dispatcher_->named_step(), " has not ended"));
  }
  if (capture_ == nullptr) {
    StepCaptureSpec spec = parts_.ForCapture();
    spec.fail = [this](const absl::Status& why) { issuer_->Fail(why); };
    parts_.communicators.KeepNoLonger();
    ASSIGN_OR_RETURN(capture_, StepCapture::Create(std::move(spec)));
  }
  if (dispatcher_->steps() == 0) {
    return absl::FailedPreconditionError(
        "capture_begin: no step has run yet; the first makes connections and "
        "scratch memory, which a capture cannot");
  }
  RETURN_IF_ERROR(capture_->Begin(origin, dispatcher_->named_step()));
  capturing_ = true;
  return absl::OkStatus();
}

absl::Status Session::CaptureEnd() {
  // No step is being captured any more, also after a failure.
  const bool was_capturing = std::exchange(capturing_, false);
  RETURN_IF_ERROR(status());
  if (!was_capturing) {
    return absl::FailedPreconditionError(
        "capture_end: no step is being captured");
  }
  RETURN_IF_ERROR(capture_->End());
  has_captured_ = true;
  return absl::OkStatus();
}

absl::Status Session::ReplayBegin(Stream* stream) {
  RETURN_IF_ERROR(status());
  RETURN_IF_ERROR(CheckStream(*stream, "replay_begin"));
  RETURN_IF_ERROR(CheckNotCapturing("replay_begin"));
  if (!has_captured_) {
    return absl::FailedPreconditionError(
        "replay_begin: no step has been captured");
  }
  if (stream != replay_stream_) RememberReleasedOn(stream);
  replay_stream_ = stream;
  return dispatcher_->ReplayBegin(stream);
}

absl::Status Session::CheckNotCapturing(absl::string_view call) const {
  if (ABSL_PREDICT_TRUE(!capturing_)) return absl::OkStatus();
  RETURN_IF_ERROR(status());
  return absl::FailedPreconditionError(absl::StrCat(
      call, ": a step is being captured; capture_end() comes first"));
}

absl::Status Session::CheckNothingBound(
    OpId op, absl::Span<const LateBinding> late) const {
  if (ABSL_PREDICT_TRUE(late.empty())) return absl::OkStatus();
  RETURN_IF_ERROR(status());
  return absl::InvalidArgumentError(
      absl::StrCat("after: op '", parts_.spec.plan->graph->op(op).name,
                   "' binds buffer ", late.front().buffer.value(),
                   ", which is not late-bound in the captured step"));
}

}  // namespace commsched
