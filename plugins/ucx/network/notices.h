// What members of communicators tell each other besides data.
#ifndef COMMSCHED_PLUGINS_UCX_NETWORK_NOTICES_H_
#define COMMSCHED_PLUGINS_UCX_NETWORK_NOTICES_H_

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ucx/launch_log.h"
#include "ucx/message.h"
#include "ucx/ready_receives.h"

namespace commsched::ucx {

class Network;

struct Notice {
  static constexpr uint32_t kLeft = 2;
  // The first notice to a member that this one exchanges messages with, and the
  // answer to it. What makes two communicators with one id different.
  static constexpr uint32_t kJoined = 3;
  // After a failure: the reader's memory is not read any more.
  static constexpr uint32_t kStopped = 4;
  // After that: nothing of its sends is under way any more, so that the reader
  // need not take them.
  static constexpr uint32_t kDrained = 5;
  // How many launches has the reader posted? And so many.
  static constexpr uint32_t kAsked = 6;
  static constexpr uint32_t kPosted = 7;
  // The hearer is to say so once it has posted so many, and says so.
  static constexpr uint32_t kTellOncePosted = 8;
  static constexpr uint32_t kHasPosted = 9;
  // A receive with a tag has been posted (ready_receives.h).
  static constexpr uint32_t kReady = 10;
  // What the teller has launched lately (launch_log.h).
  static constexpr uint32_t kLaunched = 11;

  uint32_t kind = 0;
  int32_t rank = 0;        // Of the group; who says it,
  int32_t world_rank = 0;  // and of the world.
  // kJoined: launches that it was made for. kPosted: of its collectives, from
  // the first on that it has posted and others have to get on with; 0: there is
  // none. kReady: the request.
  uint32_t in_flight = 0;
  uint32_t reads = 0;       // kJoined: 1: it reads the hearer's memory.
  uint32_t has_failed = 0;  // kLeft: 1: because of a failure.
  uint64_t tags = 0;        // Of the communicator.
  // Collectives. kLeft, kPosted: that it has posted; sends to, and receives
  // from, the reader, without a tag. kTellOncePosted, kHasPosted: these.
  // kReady: the tag, which launch of its rank it is, and the bytes of that.
  uint64_t launches = 0;
  uint64_t sent = 0;
  uint64_t received = 0;
  // kJoined: the ranks, and what its choices depend on (Choices::Text()); cut
  // to what there is room for. kLeft, kPosted: in place of the ranks, the
  // report of the reader's receives. kAsked, kPosted, kLaunched: in place of
  // the choices, what was launched from the oldest on that is not done, or
  // lately.
  char ranks[480] = "";
  char choices[240] = "";

  void SetTexts(const std::string& all_ranks, const std::string& all_choices);
  void SetReport(const ReadyReport& report);
  ReadyReport report() const;
  void SetLaunches(const LaunchReport& launches);
  LaunchReport launch_report() const;
};
static_assert(sizeof(ReadyReport) <= sizeof(Notice::ranks));
static_assert(sizeof(LaunchReport) <= sizeof(Notice::choices));

// By one of them ranks of different builds learn that they are
// (kAlgorithmsVersion): so its size is the same in all.
static_assert(sizeof(Notice) == 776);

// How many notices are under way to each member; they may outlive who has sent
// them.
using UnsentNotices = std::shared_ptr<std::vector<uint32_t>>;

// Of all communicators of a rank. They are received from whomever, for
// communicators that are there, are not there yet, or have been left.
//
// With the network's mutex.
class Notices final : public Receiver {
 public:
  explicit Notices(Network* network) : network_(network) {}

  // From here to End() they are received.
  void Begin();
  void End();

  // So many may be on their way, and heard at once, without memory from the
  // system.
  void Reserve(size_t count);

  // Those under way, which are gone with this object.
  using Sent = std::list<std::unique_ptr<Receiver>>;
  // They stay, and nothing is called any more.
  Sent TakeSent() { return std::move(sent_); }

  // To world rank `to`, which is `peer` in the group: a connection to it has
  // begun.
  void Send(const Notice& notice, int to, int peer,
            const UnsentNotices& unsent);

  // Gives what has come to the communicators that it is for. Not for callbacks:
  // who hears a notice may send.
  void Deliver();
  // A communicator has been made: what came before is its own.
  void Joined(uint64_t tags);
  // One has been left, and `last` says how: that is what members are answered
  // who want to meet it.
  void Left(const Notice& last);
  // So to `peer`, which is `world_rank` in the world.
  void AnswerForWhoLeft(uint64_t tags, int peer, int world_rank);

  void OnDone(Message* message, ucs_status_t status, uint64_t bytes) override;
  void OnHeard(Message* message, const void* data, uint64_t bytes) override;

 private:
  void Receive();
  Notice* AddHeard();
  void Hear(const Notice& notice);

  struct LastWord {
    int32_t rank = 0;
    uint32_t has_failed = 0;
    uint64_t launches = 0;
  };

  // What was used once is used again: in a steady state a member may have to
  // tell others how far it is (early_bytes.h).
  Network* const network_;
  Sent sent_;
  Sent spare_;
  Notice received_;
  Message message_;
  bool has_ended_ = false;
  std::list<Notice> heard_;
  std::list<Notice> spare_heard_;
  std::deque<Notice> early_;           // For those that are not there yet.
  std::map<uint64_t, LastWord> left_;  // By tags.
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_NETWORK_NOTICES_H_
