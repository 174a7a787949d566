// The requests of a channel that have not finished.
#ifndef COMMSCHED_SRC_CHANNEL_REQUEST_TABLE_H_
#define COMMSCHED_SRC_CHANNEL_REQUEST_TABLE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/parker.h"
#include "channel/numbered_ring.h"
#include "device/host_event.h"

namespace commsched {

// What was submitted by one call. It stays where it is and is used again, so
// that whoever waits needs nothing but `done` and the generation.
struct ChannelRequest {
  uint64_t number = 0;  // among the channel's, from 1
  uint64_t user = 0;
  uint32_t num_open = 0;  // launches that are not complete
  // Complete in `generation` once the request has finished. Counts how often
  // this has been used.
  HostEvent done;
  // Complete in `generation` once what it reads is written, if `has_input`: of
  // requests behind work of a stream.
  HostEvent input;
  bool has_input = false;
  uint64_t generation = 0;
};

// Requests are numbered 1, 2, 3, ... and may finish in any order. Memory grows
// with the most that there were between the oldest unfinished and the newest.
//
// Thread-compatible.
class RequestTable {
 public:
  // `listener`, which outlives the table, is unparked when an input is written.
  explicit RequestTable(Parker* listener) : listener_(listener) {}
  RequestTable(const RequestTable&) = delete;
  RequestTable& operator=(const RequestTable&) = delete;

  // The next one. It lives as long as the table, and is this request until
  // Finish().
  ChannelRequest* Begin();
  void Finish(ChannelRequest* request);
  // Null: it has finished. `number` is at least 1 and below next().
  ChannelRequest* Find(uint64_t number) const { return ring_.Find(number); }
  // All below have finished.
  uint64_t oldest() const { return ring_.oldest(); }
  uint64_t next() const { return ring_.next(); }

  // All that are made, whether in use or not.
  const std::vector<std::unique_ptr<ChannelRequest>>& all() const {
    return all_;
  }

 private:
  Parker* const listener_;
  std::vector<std::unique_ptr<ChannelRequest>> all_;
  std::vector<ChannelRequest*> free_;
  NumberedRing<ChannelRequest> ring_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CHANNEL_REQUEST_TABLE_H_
