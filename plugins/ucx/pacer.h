// Sends of large launches to other hosts, one peer at a time.
#ifndef COMMSCHED_PLUGINS_UCX_PACER_H_
#define COMMSCHED_PLUGINS_UCX_PACER_H_

#include <cstdint>

#include "message.h"

namespace commsched::ucx {

// A queue, with a fast lane. TCP shares a link unevenly among connections, and
// one whose neighbours have ended takes a while to use what they leave: so of
// transfers to several peers at once the last one ends late, on a link that
// idles. Ranks that send a chunk to one peer, then one to the next, each
// beginning with the rank behind it, are in each other's way as little as in a
// ring.
//
// Who does not take what it is sent holds up the others only for a while: then
// all goes out at once, until nothing is under way. Thread-compatible.
class Pacer {
 public:
  // For so long no message ends.
  static constexpr int64_t kStallNs = int64_t{200} * 1000 * 1000;

  // Lets messages of `room_bytes` be under way, or one that is larger.
  explicit Pacer(uint64_t room_bytes) : room_bytes_(room_bytes) {}

  uint64_t room_bytes() const { return room_bytes_; }
  // Takes a message, which stays where it is until it is done, or dropped.
  // `is_awaited`: it goes before all that are not.
  void Add(Message* message, int64_t now_ns, bool is_awaited = false);
  // The next one that may be sent now; null: none. It is under way from then
  // on.
  Message* Next(int64_t now_ns);
  // One that is under way no more.
  void Done(const Message& message, int64_t now_ns);
  // Takes one out that has not been sent; null: there is none.
  Message* Drop();

  bool IsWaiting() const { return first_ != nullptr; }
  // Whether Next() has one, however late it is.
  bool IsDue() const;
  // When Next() has one in any case.
  int64_t StallsAtNs() const { return last_ns_ + kStallNs; }

 private:
  const uint64_t room_bytes_;
  uint64_t bytes_ = 0;   // Under way.
  bool stalls_ = false;  // Some of it is not taken.
  Message* first_ = nullptr;
  Message* last_ = nullptr;
  Message* last_awaited_ = nullptr;
  int64_t last_ns_ = 0;  // When a message ended, or had to wait for none.
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_PACER_H_
