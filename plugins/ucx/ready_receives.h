// What is known of receives with a tag at the rank that sends to them.
//
// A rank that has posted one tells so (Notice::kReady), and what it receives is
// sent only then. So nothing comes that nobody has asked for, however many
// receives wait, and in whichever order; and as the sender finds the receive
// that a send is for, the two have a number, of the receive's launch, by which
// data is told apart, instead of a tag of 64 bits.
#ifndef COMMSCHED_PLUGINS_UCX_READY_RECEIVES_H_
#define COMMSCHED_PLUGINS_UCX_READY_RECEIVES_H_

#include <cstdint>

namespace commsched::ucx {

// One that nothing has been sent to yet.
struct ReadyReceive {
  ReadyReceive* next = nullptr;
  uint64_t tag = 0;
  uint32_t request = 0;  // Of its launch,
  uint32_t serial = 0;   // and which one of its rank it is.
  // How the data comes (Network::SendBulk): of a launch with several receives
  // of one rank in one way, since it is told apart by its order.
  bool is_bulk = false;
};

// What the sender says of them when it is asked, or leaves (Notice::ready).
struct ReadyReport {
  static constexpr uint32_t kMost = 56;
  struct Entry {
    uint32_t request = 0;
    uint32_t serial = 0;
  };

  uint64_t num_heard = 0;  // Of the receives that it has been told of;
  uint32_t num_waiting = 0;
  uint32_t reserved = 0;
  Entry waiting[kMost];  // the first of those that nothing was sent to.
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_READY_RECEIVES_H_
