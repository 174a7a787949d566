#include "channel/channel_trace.h"

#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace commsched {
namespace {

// By their place in the recorder's names; and as PyTorch's profiler calls them.
constexpr std::pair<commsched_collective_t, const char*> kKinds[] = {
    {COMMSCHED_ALL_REDUCE, "allreduce"},
    {COMMSCHED_REDUCE_SCATTER, "_reduce_scatter_base"},
    {COMMSCHED_ALL_GATHER, "_allgather_base"},
    {COMMSCHED_ALL_TO_ALL, "all_to_all"},
    {COMMSCHED_BROADCAST, "broadcast"},
    {COMMSCHED_REDUCE, "reduce"},
    {COMMSCHED_BARRIER, "barrier"},
    {COMMSCHED_SEND, "send"},
    {kGather, "gather"},
    {kScatter, "scatter"}};
// A launch of sends and receives has both.
constexpr char kTransfersName[] = "send_recv";

Recorder::ChannelIds AddNames(const ChannelSpec& spec) {
  std::vector<RecordNames::LaunchName> names;
  for (const auto& [kind, profiler_name] : kKinds) {
    RecordNames::LaunchName name;
    name.name =
        absl::StrCat(kind == COMMSCHED_SEND ? std::string(kTransfersName)
                                            : ChannelKindName(kind),
                     " of channel ", spec.number, " on axis ", spec.group.axis);
    name.collective = profiler_name;
    name.axis = spec.group.axis;
    name.ranks = spec.group.ranks;
    names.push_back(std::move(name));
  }
  return spec.recorder->AddChannel(spec.world_rank, spec.world->spec().size,
                                   names);
}

uint32_t PlaceOf(commsched_collective_t kind) {
  uint32_t place = 0;
  while (place + 1 < std::size(kKinds) && kKinds[place].first != kind) ++place;
  return place;
}

}  // namespace

ChannelTrace::ChannelTrace(const ChannelSpec& spec)
    : recorder_(spec.recorder.get()), ids_(AddNames(spec)) {}

void ChannelTrace::Add(const ChannelLaunch& launch, uint64_t request) const {
  const commsched_collective_t kind =
      launch.is_transfer ? commsched_collective_t{COMMSCHED_SEND} : launch.kind;
  recorder_->Add({.begin_ns = launch.posted_ns,
                  .end_ns = SystemClock::Get().NowNs(),
                  .step = request,
                  .value = launch.bytes,
                  .index = ids_.first + PlaceOf(kind),
                  .kind = RecordKind::kChannel,
                  .lane = ids_.lane});
}

}  // namespace commsched
