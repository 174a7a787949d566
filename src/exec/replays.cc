#include "exec/replays.h"

#include <utility>

#include "base/status_macros.h"

namespace commsched {

absl::StatusOr<std::unique_ptr<Replays>> Replays::Create(ReplaysSpec spec) {
  std::unique_ptr<Replays> replays(new Replays(std::move(spec)));
  ASSIGN_OR_RETURN(replays->end_,
                   replays->spec_.device->CreateEvent(Program::kRunAhead + 1));
  return replays;
}

// A launch of a graph is behind everything that its stream did before, and that
// alone.
void Replays::OrderReplay(Stream* stream, uint64_t generation) {
  if (generation != 0 && IsReplay(generation)) {
    if (stream != stream_) stream->Wait(end_.get(), generation);
  } else if (generation != 0) {
    for (Event* lane_end : spec_.lane_ends) stream->Wait(lane_end, generation);
    for (const LaunchProgram& launch : spec_.program->launches) {
      stream->Wait(launch.event, generation);
    }
  }
  stream_ = stream;
}

void Replays::OrderPlain(uint64_t generation) {
  if (generation == 0 || !IsReplay(generation)) return;
  for (Stream* stream : spec_.streams) {
    if (stream != stream_) stream->Wait(end_.get(), generation);
  }
}

void Replays::End(uint64_t generation) {
  stream_->Record(end_.get(), generation);
  for (const auto& event : spec_.program->events) event->Replayed(generation);
  generations_[generation % generations_.size()].store(
      generation, std::memory_order_release);
  latest_.store(generation, std::memory_order_release);
}

void Replays::Await(uint64_t generation) {
  if (generation == 0 || !IsReplay(generation)) return;
  end_->Synchronize(generation);
  if (end_->IsComplete(generation)) CompleteAll(generation);
}

// From the latest on: the first that is complete says it of all before.
void Replays::Settle() {
  const uint64_t settled = settled_.load(std::memory_order_relaxed);
  const uint64_t latest = latest_.load(std::memory_order_acquire);
  for (uint64_t generation = latest;
       generation > settled && latest - generation < generations_.size();
       --generation) {
    if (!IsReplay(generation) || !end_->IsComplete(generation)) continue;
    CompleteAll(generation);
    return;
  }
}

void Replays::Poison() {
  is_poisoned_.store(true, std::memory_order_release);
  GiveTurns();
  end_->Poison();
  for (Event* lane_end : spec_.lane_ends) lane_end->Poison();
}

// A poisoned end says nothing about the work of compute ops, whose events tell
// after a failure, too, which memory is free.
void Replays::CompleteAll(uint64_t generation) {
  if (is_poisoned_.load(std::memory_order_acquire)) return;
  for (const auto& event : spec_.program->events) event->Complete(generation);
  for (Event* lane_end : spec_.lane_ends) lane_end->Complete(generation);
  settled_.store(generation, std::memory_order_relaxed);
}

}  // namespace commsched
