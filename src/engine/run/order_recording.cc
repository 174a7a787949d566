#include "engine/run/order_recording.h"

#include <algorithm>
#include <string>
#include <utility>

namespace commsched::engine {
namespace {

// The recording is never to make a plan of what it sees.
constexpr uint32_t kNeverFrozen = 1u << 30;

uint64_t BytesOf(const Bucket& bucket) {
  return bucket.count * SizeOf(bucket.dtype);
}

// Bytes of those `buckets`, of one module, that are gathered.
uint64_t GatheredBytes(const StepSpec& step, const Layout& layout,
                       const std::vector<uint32_t>& buckets) {
  uint64_t bytes = 0;
  for (uint32_t b : buckets) {
    if (step.gathers(layout.buckets[b])) bytes += BytesOf(layout.buckets[b]);
  }
  return bytes;
}

}  // namespace

Status OrderRecording::Create(const Spec& spec, const Layout& layout,
                              std::unique_ptr<OrderRecording>* out_recording) {
  std::unique_ptr<OrderRecording> made(new OrderRecording());
  uint64_t most = 0;
  for (const std::vector<uint32_t>& buckets : layout.module_buckets) {
    most = std::max(most, GatheredBytes(spec.step, layout, buckets));
  }
  ENGINE_RETURN_IF_ERROR(Bytes::Create(
      *spec.memory, *spec.kernels, "the largest module", most, &made->memory_));
  // Gathers do not wait for the stream of the kernels.
  ENGINE_RETURN_IF_ERROR(spec.kernels->Synchronize());
  commsched_recording_desc_t desc = commsched_recording_desc_init();
  desc.context = spec.context;
  desc.groups = &spec.group;
  desc.num_groups = 1;
  desc.launch_timeout_ns = spec.launch_timeout_ns;
  desc.steps_to_record = kNeverFrozen;
  desc.max_recorded_steps = kNeverFrozen;
  commsched_recording_t* recording = nullptr;
  ENGINE_RETURN_IF_ERROR(
      Status::FromCall(commsched_recording_create(&desc, &recording),
                       "creating a recording of the order of modules"));
  made->recording_.reset(recording);
  ENGINE_RETURN_IF_ERROR(made->Declare(spec, layout));
  *out_recording = std::move(made);
  return Status();
}

Status OrderRecording::AddBuffer(const std::string& name, std::byte* address,
                                 uint64_t bytes,
                                 commsched_buffer_id_t* out_buffer) {
  commsched_buffer_desc_t desc = commsched_buffer_desc_init();
  desc.name = name.c_str();
  desc.dtype = COMMSCHED_U8;
  desc.ownership = COMMSCHED_BOUND;
  desc.count = bytes;
  return Status::FromCall(commsched_recording_add_buffer(
                              recording_.get(), &desc, address, out_buffer),
                          "declaring a buffer");
}

Status OrderRecording::DeclareEnd() {
  commsched_collective_desc_t desc = commsched_collective_desc_init();
  desc.name = "end_of_forward";
  desc.kind = COMMSCHED_BARRIER;
  return Status::FromCall(
      commsched_recording_add_collective(recording_.get(), &desc, /*segment=*/0,
                                         /*flags=*/0, &end_),
      "declaring the end of the forward");
}

// Buckets of a module lie side by side, so that all can be gathered at once.
Status OrderRecording::Declare(const Spec& spec, const Layout& layout) {
  commsched_buffer_id_t whole = kNoId;
  ENGINE_RETURN_IF_ERROR(
      AddBuffer("gathered", memory_.data(), memory_.count(), &whole));
  ENGINE_RETURN_IF_ERROR(DeclareEnd());
  std::vector<commsched_buffer_id_t> shards(layout.buckets.size(), kNoId);
  for (uint32_t b = 0; b < shards.size(); ++b) {
    if (spec.shards[b] == nullptr) continue;
    ENGINE_RETURN_IF_ERROR(AddBuffer(
        Indexed("parameter_shard", b), spec.shards[b],
        BytesOf(layout.buckets[b]) / spec.step.num_shards(), &shards[b]));
  }
  for (uint32_t m = 0; m < layout.module_buckets.size(); ++m) {
    ModuleGathers& module = modules_.emplace_back();
    uint64_t offset = 0;
    for (uint32_t b : layout.module_buckets[m]) {
      module.addresses.push_back(nullptr);
      if (shards[b] == kNoId) continue;
      const std::string name = Indexed(Indexed("all_gather", b).c_str(), m);
      commsched_collective_desc_t desc = commsched_collective_desc_init();
      desc.name = name.c_str();
      desc.kind = COMMSCHED_ALL_GATHER;
      desc.input = Access(shards[b], COMMSCHED_READ);
      desc.output = Access(whole, COMMSCHED_WRITE);
      desc.output.region = COMMSCHED_RANGE;
      desc.output.offset = offset;
      desc.output.count = BytesOf(layout.buckets[b]);
      ENGINE_RETURN_IF_ERROR(Status::FromCall(
          commsched_recording_add_collective(recording_.get(), &desc,
                                             /*segment=*/0, /*flags=*/0,
                                             &module.ops.emplace_back()),
          "declaring a gather"));
      module.addresses.back() = memory_.data() + offset;
      offset += desc.output.count;
    }
  }
  return Status();
}

Status OrderRecording::Begin() {
  return Status::FromCall(commsched_recording_step_begin(recording_.get()),
                          "beginning to record the order of modules");
}

Status OrderRecording::Gather(uint32_t module,
                              const std::vector<std::byte*>** out_addresses) {
  const ModuleGathers& gathers = modules_[module];
  for (commsched_op_id_t op : gathers.ops) {
    ENGINE_RETURN_IF_ERROR(
        Status::FromCall(commsched_recording_submit(recording_.get(), op),
                         "gathering a module whose order is recorded"));
  }
  *out_addresses = &gathers.addresses;
  return Status();
}

// A rank that has a module to come learns by the barrier that others do not.
Status OrderRecording::End() {
  ENGINE_RETURN_IF_ERROR(
      Status::FromCall(commsched_recording_submit(recording_.get(), end_),
                       "ending a forward whose order is recorded"));
  return Status::FromCall(commsched_recording_step_end(recording_.get()),
                          "recording the order of modules");
}

Status OrderRecording::status() const {
  return Status::FromCall(commsched_recording_status(recording_.get()),
                          "the recording of the order has failed");
}

void OrderRecording::Abort(const char* reason) {
  commsched_recording_abort(recording_.get(), reason);
}

// ---- Which modules have begun ---------------------------------------------

Status OrderRecorder::Check(const Model& model) {
  if (!model.passes().empty()) {
    return FailedPrecondition(
        "engine: the order of modules cannot be recorded, since the passes of "
        "a step were set");
  }
  for (const Module& module : model.modules()) {
    if (module.steps[0].empty() && module.steps[1].empty()) continue;
    return FailedPrecondition(
        "engine: the order of modules cannot be recorded, since module '" +
        module.name + "' has ops or collectives within");
  }
  return Status();
}

void OrderRecorder::Begin(bool evaluating) {
  evaluating_ = evaluating;
  recorded_.clear();
  num_again_ = 0;
}

bool OrderRecorder::CanBegin(const PassCall& call) const {
  if (call.module >= model_.modules().size()) return false;
  if (call.kind == PassKind::kForward) return num_again_ == 0;
  return !evaluating_ && RunsAgain() && call.module == AgainAt(num_again_);
}

void OrderRecorder::BeginPass(const PassCall& call) {
  if (call.kind == PassKind::kForward) {
    recorded_.push_back(call.module);
  } else {
    ++num_again_;
  }
}

PassCall OrderRecorder::pass() const {
  if (num_again_ == 0) return {.module = recorded_.back()};
  return {.kind = PassKind::kRecompute, .module = AgainAt(num_again_ - 1)};
}

bool OrderRecorder::EndsWith(const PassCall& call) const {
  if (evaluating_) return false;
  if (recorded_.empty()) return !IsBackward(call.kind) && may_skip_;
  return call == PassCall{PassKind::kBackward, recorded_.back(), 0} &&
         !RunsAgain();
}

std::string OrderRecorder::Expected() const {
  const std::string any = "pass_begin of FORWARD of any module, micro-batch 0";
  if (evaluating_) return any + ", or evaluation_end";
  if (recorded_.empty()) return any;
  PassCall next = {.kind = PassKind::kBackward, .module = recorded_.back()};
  if (RunsAgain()) {
    next = {.kind = PassKind::kRecompute, .module = AgainAt(num_again_)};
  }
  const std::string text = model_.TextOfCall("begin", next);
  return num_again_ == 0 ? any + ", or " + text : text;
}

Status OrderRecorder::FindSequence(Sequence* out_sequence,
                                   std::vector<uint8_t>* out_left_out) const {
  Sequence sequence = recorded_;
  std::vector<uint8_t> left_out(sequence.size(), 0);
  for (uint32_t m = 0; m < model_.modules().size(); ++m) {
    if (std::find(sequence.begin(), sequence.end(), m) != sequence.end()) {
      continue;
    }
    if (!may_skip_) {
      return FailedPrecondition(
          "engine: module " + std::to_string(m) + " '" +
          model_.modules()[m].name +
          "' was not begun in the forward that records the order; "
          "allow_skipped_modules is 0");
    }
    auto at = sequence.begin();
    if (m > 0) at = std::find(at, sequence.end(), m - 1) + 1;
    left_out.insert(left_out.begin() + (at - sequence.begin()), 1);
    sequence.insert(at, m);
  }
  *out_sequence = std::move(sequence);
  *out_left_out = std::move(left_out);
  return Status();
}

Sequence OrderRecorder::MissingOf(const Sequence& planned) const {
  Sequence missing;
  if (num_again_ > 0) return missing;
  Sequence begun = recorded_;
  for (const uint32_t module : planned) {
    const auto found = std::find(begun.begin(), begun.end(), module);
    if (found == begun.end()) {
      missing.push_back(module);
    } else {
      begun.erase(found);
    }
  }
  return missing;
}

// How many modules at the end are recomputed together: before the first
// backward their forwards run again.
size_t OrderRecorder::SegmentAtEnd() const {
  size_t begin = recorded_.size();
  const uint32_t segment =
      begin == 0 ? 0 : model_.modules()[recorded_.back()].segment;
  while (segment > 0 && begin > 0 &&
         model_.modules()[recorded_[begin - 1]].segment == segment) {
    --begin;
  }
  return recorded_.size() - begin;
}

}  // namespace commsched::engine
