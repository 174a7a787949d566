#include "channel/request_table.h"

namespace commsched {

ChannelRequest* RequestTable::Begin() {
  if (free_.empty()) {
    free_.reserve(all_.size() + 1);
    all_.push_back(std::make_unique<ChannelRequest>());
    all_.back()->input.AddListener(listener_);
    free_.push_back(all_.back().get());
  }
  ChannelRequest* const request = free_.back();
  request->number = ring_.Add(request);
  free_.pop_back();
  ++request->generation;
  request->has_input = false;
  return request;
}

void RequestTable::Finish(ChannelRequest* request) {
  ring_.Finish(request->number);
  free_.push_back(request);
}

}  // namespace commsched
