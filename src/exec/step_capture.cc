#include "exec/step_capture.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace commsched {
namespace {

absl::Status Refused(absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("capture_begin: ", why));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepCapture>> StepCapture::Create(
    StepCaptureSpec spec) {
  RETURN_IF_ERROR(Refuse(spec));
  std::unique_ptr<StepCapture> capture(new StepCapture(std::move(spec)));
  const Program& program = capture->program_;
  RETURN_IF_ERROR(capture->MakeStreams());
  ASSIGN_OR_RETURN(capture->edge_, capture->spec_.device->CreateEvent(1));
  RETURN_IF_ERROR(capture->edge_->PrepareCapture(/*watched=*/false));
  for (const NodeProgram& node : program.nodes) {
    if (node.event == nullptr) continue;
    RETURN_IF_ERROR(node.event->PrepareCapture(/*watched=*/false));
  }
  for (const LaunchProgram& launch : program.launches) {
    RETURN_IF_ERROR(launch.event->PrepareCapture(/*watched=*/true));
  }
  return capture;
}

StepCapture::StepCapture(StepCaptureSpec spec)
    : spec_(std::move(spec)), program_(*spec_.program) {
  for (Stream* lane : spec_.lanes) {
    if (std::find(streams_.begin(), streams_.end(), lane) == streams_.end()) {
      streams_.push_back(lane);
    }
  }
}

absl::Status StepCapture::MakeStreams() {
  side_streams_.resize(program_.plan->num_comm_lanes);
  for (const LaunchProgram& launch : program_.launches) {
    std::unique_ptr<Stream>& side = side_streams_[launch.lane];
    if (side != nullptr) continue;
    ASSIGN_OR_RETURN(side, spec_.device->CreateSideStream());
    streams_.push_back(side.get());
  }
  return absl::OkStatus();
}

absl::Status StepCapture::Refuse(const StepCaptureSpec& spec) {
  const Program& program = *spec.program;
  if (!program.enqueue) {
    return Refused(
        "launches of this session do not go out on streams of a device");
  }
  for (size_t i = 0; i < spec.lanes.size(); ++i) {
    if (spec.lanes[i]->is_device()) continue;
    return Refused(
        absl::StrCat("compute lane ", i,
                     " is the calling thread, whose work no graph can repeat"));
  }
  if (!program.late_buffers.empty()) {
    const BufferId buffer = program.late_buffers.front().buffer;
    return Refused(absl::StrCat(
        "buffer '", program.plan->graph->buffer(buffer).name,
        "' is late-bound, and a graph has the addresses of its capture only"));
  }
  for (uint32_t i = 0; i < program.launches.size(); ++i) {
    if (program.launches[i].gates == 0) continue;
    return Refused(absl::StrCat("launch ", program.LaunchName(i),
                                " is submitted anew in every step"));
  }
  return absl::OkStatus();
}

absl::Status StepCapture::Begin(Stream* origin, uint64_t step) {
  ASSIGN_OR_RETURN(const uint64_t id, origin->CaptureId());
  if (id == 0) {
    return Refused(
        "the origin stream is not capturing; cudaStreamBeginCapture() comes "
        "first");
  }
  RETURN_IF_ERROR(CheckStreams(origin, id));
  origin_ = origin;
  id_ = id;
  step_ = step;
  absl::Status forked;
  {
    MutexLock lock(&mu_);
    forked = Fork(origin);
  }
  return Finish(std::move(forked));
}

absl::Status StepCapture::Fork(Stream* origin) {
  head_ = 0;
  states_.assign(program_.nodes.size(), NodeState::kToCome);
  missing_.clear();
  for (const LaunchProgram& launch : program_.launches) {
    missing_.push_back(launch.producers.count);
  }
  origin->RecordInCapture(edge_.get());
  for (Stream* stream : streams_) {
    if (stream != origin) stream->WaitInCapture(edge_.get());
  }
  RETURN_IF_ERROR(CheckDevice());
  return EnqueueDue();
}

// What would break the capture is refused before it does.
absl::Status StepCapture::CheckStreams(Stream* origin, uint64_t id) const {
  for (size_t i = 0; i < spec_.lanes.size(); ++i) {
    Stream* const lane = spec_.lanes[i];
    if (lane == origin) continue;
    if (lane->is_legacy()) {
      return Refused(absl::StrCat("compute lane ", i,
                                  " is the legacy default stream, which cannot "
                                  "be captured"));
    }
    ASSIGN_OR_RETURN(const uint64_t other, lane->CaptureId());
    if (other != 0 && other != id) {
      return Refused(absl::StrCat("compute lane ", i,
                                  " is being captured into a graph other than "
                                  "that of the origin stream"));
    }
  }
  return absl::OkStatus();
}

absl::Status StepCapture::Before(uint32_t index, Stream* stream) {
  absl::Status entered;
  {
    MutexLock lock(&mu_);
    entered = Enter(index, stream);
  }
  return Finish(std::move(entered));
}

absl::Status StepCapture::Enter(uint32_t index, Stream* stream) {
  RETURN_IF_ERROR(CheckCall(index, stream, NodeState::kToCome, "before"));
  const NodeProgram& node = program_.nodes[index];
  RETURN_IF_ERROR(CheckDependencies(node));
  states_[index] = NodeState::kBegun;
  EnqueueWaits(node.waits, stream);
  return CheckDevice();
}

absl::Status StepCapture::After(uint32_t index, Stream* stream) {
  absl::Status left;
  {
    MutexLock lock(&mu_);
    left = Leave(index, stream);
  }
  return Finish(std::move(left));
}

absl::Status StepCapture::Leave(uint32_t index, Stream* stream) {
  RETURN_IF_ERROR(CheckCall(index, stream, NodeState::kBegun, "after"));
  const NodeProgram& node = program_.nodes[index];
  states_[index] = NodeState::kDone;
  if (node.event != nullptr) stream->RecordInCapture(node.event);
  RETURN_IF_ERROR(CheckDevice());
  for (uint32_t i = 0; i < node.feeds.count; ++i) {
    --missing_[program_.feeds[node.feeds.begin + i]];
  }
  return EnqueueDue();
}

absl::Status StepCapture::End() {
  absl::Status joined;
  {
    MutexLock lock(&mu_);
    joined = Join();
  }
  return Finish(std::move(joined));
}

absl::Status StepCapture::Join() {
  RETURN_IF_ERROR(spec_.failure->status());
  const absl::Status whole = CheckWhole();
  // Without a collective nothing was captured that concerns other ranks.
  if (!whole.ok()) return head_ == 0 ? whole : Break(whole);
  for (Stream* stream : streams_) {
    if (stream == origin_) continue;
    stream->RecordInCapture(edge_.get());
    origin_->WaitInCapture(edge_.get());
  }
  return CheckDevice();
}

absl::Status StepCapture::CheckWhole() const {
  for (uint32_t i = 0; i < states_.size(); ++i) {
    if (states_[i] == NodeState::kDone) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "capture_end: op '", program_.OpName(i),
        "': its after was not called in the captured step, which is given up"));
  }
  ASSIGN_OR_RETURN(const uint64_t id, origin_->CaptureId());
  if (id != id_) {
    return absl::FailedPreconditionError(
        "capture_end: the capture of the origin stream ended before the step "
        "did; cudaStreamEndCapture() comes last");
  }
  return absl::OkStatus();
}

absl::Status StepCapture::CheckCall(uint32_t index, const Stream* stream,
                                    NodeState state,
                                    absl::string_view call) const {
  RETURN_IF_ERROR(spec_.failure->status());
  const NodeProgram& node = program_.nodes[index];
  if (stream != spec_.lanes[node.lane]) {
    return absl::InvalidArgumentError(absl::StrCat(
        call, ": op '", program_.OpName(index),
        "' was given a stream other than that of its lane ", node.lane));
  }
  if (states_[index] == state) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      call, ": op '", program_.OpName(index), "': its ",
      states_[index] == NodeState::kToCome ? "before was not" : call,
      states_[index] == NodeState::kToCome ? " called" : " was already called",
      " in the captured step"));
}

absl::Status StepCapture::CheckDependencies(const NodeProgram& node) const {
  for (uint32_t i = 0; i < node.after.count; ++i) {
    const uint32_t producer = program_.after[node.after.begin + i];
    if (states_[producer] != NodeState::kDone) return NotYet(node, producer);
  }
  for (uint32_t launch = head_; launch < node.due_needed; ++launch) {
    const Span32 producers = program_.launches[launch].producers;
    for (uint32_t i = 0; i < producers.count; ++i) {
      const uint32_t producer = program_.producers[producers.begin + i];
      if (states_[producer] != NodeState::kDone) return NotYet(node, producer);
    }
  }
  return absl::OkStatus();
}

absl::Status StepCapture::NotYet(const NodeProgram& node,
                                 uint32_t missing) const {
  return absl::UnavailableError(
      absl::StrCat("before: op '", program_.plan->graph->op(node.op).name,
                   "': not yet: waits for op '", program_.OpName(missing),
                   "', whose after was not called in the captured step"));
}

// In key order, as far as producers are done.
absl::Status StepCapture::EnqueueDue() {
  while (head_ < program_.launches.size() && missing_[head_] == 0) {
    RETURN_IF_ERROR(Enqueue(head_));
    ++head_;
  }
  return absl::OkStatus();
}

absl::Status StepCapture::Enqueue(uint32_t index) {
  LaunchProgram& launch = spec_.program->launches[index];
  const StagingStep* staging = program_.staging.data();
  Stream* const stream = side_streams_[launch.lane].get();
  EnqueueWaits(launch.waits, stream);
  for (uint32_t i = 0; i < launch.staging_in.count; ++i) {
    stream->Copy(staging[launch.staging_in.begin + i]);
  }
  RETURN_IF_ERROR(CheckDevice());
  launch.call.step = step_;
  const commsched_status_t code =
      spec_.backend->launch(launch.comm, &launch.call, 0, stream->handle(),
                            message_.Begin(), PluginMessage::size());
  if (code != COMMSCHED_OK) {
    const absl::Status why =
        BackendFailure(*spec_.backend, "launch", code, message_);
    return Break(absl::Status(
        why.code(), absl::StrCat("launch ", program_.LaunchName(index), ": ",
                                 why.message())));
  }
  for (uint32_t i = 0; i < launch.staging_out.count; ++i) {
    stream->Copy(staging[launch.staging_out.begin + i]);
  }
  stream->RecordInCapture(launch.event);
  return CheckDevice();
}

// What an earlier step did is complete when the graph begins.
void StepCapture::EnqueueWaits(Span32 waits, Stream* stream) {
  const ProgramWait* wait = program_.waits.data() + waits.begin;
  for (uint32_t i = 0; i < waits.count; ++i, ++wait) {
    if (wait->distance == 0) stream->WaitInCapture(wait->event);
  }
}

absl::Status StepCapture::CheckDevice() {
  if (!spec_.device->failed()) return absl::OkStatus();
  return Break(spec_.device->status());
}

absl::Status StepCapture::Break(absl::Status why) {
  is_broken_ = true;
  return absl::Status(why.code(),
                      absl::StrCat("in a captured step: ", why.message()));
}

// With no lock held: whoever is told of a failure may call the session.
absl::Status StepCapture::Finish(absl::Status done) {
  if (done.ok()) return done;
  {
    MutexLock lock(&mu_);
    if (!is_broken_) return done;
  }
  spec_.fail(done);
  return spec_.failure->status();
}

}  // namespace commsched
