// What a channel launches, in a trace.
#ifndef COMMSCHED_SRC_CHANNEL_CHANNEL_TRACE_H_
#define COMMSCHED_SRC_CHANNEL_CHANNEL_TRACE_H_

#include <cstdint>

#include "channel/channel_launch.h"
#include "channel/channel_spec.h"
#include "trace/recorder.h"

namespace commsched {

// One channel's side of a recorder, which knows its kinds by name from here on.
//
// Thread-safe.
class ChannelTrace {
 public:
  // `spec` has a recorder, and outlives this.
  explicit ChannelTrace(const ChannelSpec& spec);
  ChannelTrace(const ChannelTrace&) = delete;
  ChannelTrace& operator=(const ChannelTrace&) = delete;

  // It has finished just now. Takes no lock and allocates nothing.
  void Add(const ChannelLaunch& launch, uint64_t request) const;

 private:
  Recorder* const recorder_;
  const Recorder::ChannelIds ids_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CHANNEL_CHANNEL_TRACE_H_
