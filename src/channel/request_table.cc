#include "channel/request_table.h"

#include <algorithm>
#include <utility>

namespace commsched {
namespace {

constexpr size_t kFirstRing = 64;

}  // namespace

ChannelRequest* RequestTable::Begin() {
  if (next_ - oldest_ == ring_.size()) Grow();
  if (free_.empty()) {
    free_.reserve(all_.size() + 1);
    all_.push_back(std::make_unique<ChannelRequest>());
    all_.back()->input.AddListener(listener_);
    free_.push_back(all_.back().get());
  }
  ChannelRequest* const request = free_.back();
  free_.pop_back();
  request->number = next_;
  ++request->generation;
  request->has_input = false;
  At(next_++) = request;
  return request;
}

void RequestTable::Finish(ChannelRequest* request) {
  At(request->number) = nullptr;
  while (oldest_ < next_ && At(oldest_) == nullptr) ++oldest_;
  free_.push_back(request);
}

ChannelRequest* RequestTable::Find(uint64_t number) const {
  if (number < oldest_) return nullptr;
  return ring_[number & (ring_.size() - 1)];
}

void RequestTable::Grow() {
  std::vector<ChannelRequest*> larger(std::max(kFirstRing, 2 * ring_.size()));
  for (uint64_t number = oldest_; number < next_; ++number) {
    larger[number & (larger.size() - 1)] = At(number);
  }
  ring_ = std::move(larger);
}

}  // namespace commsched
