// One rank's communicator.
#ifndef COMMSCHED_PLUGINS_UCX_COMM_H_
#define COMMSCHED_PLUGINS_UCX_COMM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commsched/plugin.h"
#include "ucx/algorithms/choice.h"
#include "ucx/algorithms/layout.h"
#include "ucx/algorithms/operation.h"
#include "ucx/group_join.h"
#include "ucx/launch_log.h"
#include "ucx/network/early_bytes.h"
#include "ucx/network/network.h"
#include "ucx/network/notices.h"
#include "ucx/network/pacer.h"
#include "ucx/pools.h"
#include "ucx/ready_receives.h"
#include "ucx/tag_table.h"
#include "ucx/times/start_exchange.h"

namespace commsched::ucx {

// Members that exchange messages meet first: each tells the other that it has
// joined, as the first one does when it expects a launch with such messages, or
// has one, and the other in answer. Until then messages wait. So whoever may
// have something of this member under way, or wait for something of it, is
// known here, and is told when this member fails or leaves; the others, with
// whom it has nothing to do, are not.
//
// Thread rules are those of commsched_backend_t. What an abort touches, and
// what UCX does while somebody waits, is behind the network's mutex.
class Comm final : public Receiver, public std::enable_shared_from_this<Comm> {
 public:
  static Outcome Create(Network* network, const commsched_comm_desc_t& desc,
                        std::shared_ptr<Comm>* out);
  ~Comm() override;

  // Joins (group_join.h). Ready once all have, and what others wait for is out,
  // since who is ready may wait elsewhere and make no progress. Else
  // `*waits_for` says what is missing.
  Outcome Ready(bool* ready, std::string* waits_for);
  // Makes room for launches like these, beside those in flight, and meets whom
  // they need.
  Outcome Expect(const commsched_launch_t* launches, uint32_t num_launches);
  // Thread-safe.
  Outcome Estimate(const commsched_launch_t& launch,
                   commsched_launch_estimate_t* out_estimate) const;
  Outcome Launch(const commsched_launch_t& launch, uint32_t request);
  Outcome Poll(uint32_t request, commsched_launch_result_t* out_result);
  // With the network's mutex.
  void Abort(commsched_status_t status, const char* message);
  Outcome Status();
  // Of those that `request` waits for, and who keep them: who has said that it
  // has not posted it, and is not kept itself (are asked anew if `capacity` is
  // 0); and who has been asked and says nothing.
  uint32_t Missing(uint32_t request, int32_t* out_ranks, uint32_t capacity);
  uint32_t Silent(uint32_t request, int32_t* out_ranks, uint32_t capacity);
  uint32_t TakeStarts(commsched_launch_start_t* out_starts, uint32_t capacity);
  // The host lets go of it.
  void Leave();
  // Whether messages are under way that refer to it.
  bool IsUnderWay() const;
  // Of its launches in flight the one with the least that has still to be sent
  // or received between hosts; UINT64_MAX: there is none. With the network's
  // mutex; Network::gathers() only.
  uint64_t LeastFarBytes() const;

  // With the network's mutex, not in callbacks of UCX: notices to it, and that
  // other ranks have been connected.
  uint64_t tags() const { return tags_; }
  void Hear(const Notice& notice);
  void OnConnected();
  // Likewise: sends what waits for its turn (pacer.h).
  void PostPaced();

 private:
  // What passes between this member and another.
  struct Peer {
    uint64_t sends = 0;  // Posted here, of kind SEND.
    uint64_t receives = 0;
    bool reads = false;          // This rank's memory.
    bool is_introduced = false;  // It has been told that this member joined,
    bool has_joined = false;     // and has said so itself.
    bool is_open = false;        // Both, and messages may be posted.
    LinkedQueue<Message> unposted;
    // Its receives with a tag that nothing has been sent to, and sends to it
    // with a tag whose receive is not known (ready_receives.h).
    LinkedQueue<ReadyReceive> ready;
    LinkedQueue<Message> unready;
    uint64_t num_ready_heard = 0;
    // Of the launch whose receives were heard of last: which one it is, and
    // how data for it goes.
    uint64_t ready_serial = UINT64_MAX;
    bool ready_is_bulk = false;
    uint64_t num_ready_told = 0;         // This rank's, to it.
    uint64_t num_ready_heard_there = 0;  // Of those, as it has said.
    bool has_stopped = false;
    bool has_drained = false;
    bool has_left = false;
    bool has_failed = false;
    uint64_t launches_at_end = 0;  // Of one that has left.
    uint64_t sends_at_end = 0;     // To this member.
    uint64_t receives_at_end = 0;
    // What it has posted, at least: as it has said, or as data shows.
    uint64_t launches_posted = 0;
    uint64_t sends_posted = 0;  // To this member.
    uint64_t receives_posted = 0;
    // Since when it has not answered; 0: nothing is asked. Whether it is to be
    // asked again when it has. When it was asked for its last answer, and
    // whether nothing has been asked since.
    int64_t asked_ns = 0;
    bool asks_again = false;
    int64_t answer_asked_ns = 0;
    bool answer_counts = false;
    // It has answered that it is kept in this collective, counted from 1; 0: in
    // none (Comm::KeptIn).
    uint64_t kept_in = 0;
    bool is_answer_due = false;  // It has asked, and cannot be answered yet.
    // It is to be told once this member has posted so many; 0: it has not
    // asked.
    uint64_t told_once_posted = 0;
    // The last launch with a receive of it that such receives were looked for
    // in.
    uint64_t received_in = UINT64_MAX;
    // As LookAt() has left them, of the launch that it looked at: a message is
    // to come from it, or has not been taken by it; it has posted it (of sends
    // and receives, what is open); and whether anything of it is waited for.
    bool has_open = false;
    bool has_posted = false;
    bool may_keep = false;
  };

  Comm(Network* network, const commsched_comm_desc_t& desc);
  int size() const { return static_cast<int>(ranks_.size()); }
  Outcome CheckLaunch(const commsched_launch_t& launch, uint32_t request) const;
  Outcome CheckChoice(const commsched_launch_t& launch);
  Outcome OnAxis(Outcome outcome) const;

  void OnDone(Message* message, ucs_status_t status, uint64_t bytes) override;
  void OnHeard(Message* message, const void* data, uint64_t bytes) override;
  // Of messages that are offered, and read by their receiver.
  void OnOffer(Message* message);
  void OnAnswer(ucs_status_t status, uint64_t bytes);
  void HearAnswer(const MessageId& id);
  void Answer(Message* message);
  void Finish(Message* message, ucs_status_t status, uint64_t bytes);
  void HearData(Operation* operation, Message* message);
  void MeetPeers(const Operation& operation);
  void CountPeers(Operation* operation);
  void WakeIfDue(const Operation& operation);
  // It keeps this rank no more: KeptIn().
  void SetFreed(const Operation& operation);
  // Whether one of `peers`, or a second connection with one of `bulk_peers`,
  // may not be there yet.
  bool MayConnect(const std::vector<bool>& peers,
                  const std::vector<bool>& bulk_peers) const;
  // What `check` has compared is another rank's.
  void IsOther(const Operation& operation, const CountsCheck& check);
  void MessageFailed(const Operation& operation, const Message& message,
                     ucs_status_t status, uint64_t bytes);
  void HearJoined(const Notice& notice);
  // Who has not posted (comm_late.cc).
  void Ask(uint32_t request, int64_t now_ns);
  void AskAll(int64_t now_ns);
  void AskAnew(int peer, int64_t now_ns);
  void AskPeer(int peer, int64_t now_ns);
  void AnswerAsked(int peer);
  void HearPosted(const Notice& notice);
  bool WaitsFor(const Operation& operation, int peer) const;
  bool LookAt(const Operation& operation);
  uint64_t KeptIn(int64_t now_ns) const;
  static bool Counts(const Peer& peer, int64_t now_ns);
  template <typename Is>
  uint32_t List(uint32_t request, int32_t* out_ranks, uint32_t capacity,
                const Is& is);
  void BeginExchange();

  // Sends and receives with a tag, with the mutex held (comm_tags.cc).
  bool TakeReady(const Operation& operation, Message* message);
  void TellReady(const Operation& operation, Message* message);
  void HearReady(const Notice& notice);
  ReadyReport ReportTo(int peer) const;
  void HearReport(const Notice& notice);
  std::string MissedTag(int peer) const;

  // With the mutex held (comm_sends.cc).
  void Post(Operation* operation, uint32_t first, uint32_t count);
  void PostOne(Operation* operation, Message* message);
  void PostOnceOpen(Operation* operation, Message* message);
  void PostNow(Operation* operation, Message* message);
  void PostSend(Operation* operation, Message* message);
  void SendData(const Operation& operation, Message* message);
  void AddToWindow(Message* message);
  void TakeFromWindow(Message* message);
  static bool IsBulk(uint64_t bytes);
  bool HasBulkToAll(const std::vector<Message>& messages);
  bool IsPaced(const Operation& operation) const;
  uint64_t FarBytes(const Operation& operation) const;
  void DropPaced();
  void PostFirst(Operation* operation);
  void PostFirstSends(Operation* operation);
  void PostHeld();
  bool MustWait(const Operation& operation);
  void CountEarly(const Operation& operation);
  bool IsAhead(const Operation& operation);
  void AskToBeTold(int peer);
  void TellOncePosted(int peer);
  void SetPosted(int peer, uint64_t launches);
  void LeaveWindow();
  void ReceiveAnswers();
  void Introduce(int peer);
  Outcome TryIntroduce(int peer);
  void Open(int peer);
  void Tell(const Notice& notice, int peer);
  void TellAll(uint32_t kind);
  Outcome Join(int64_t deadline_ns, std::string* waits_for);
  void AwaitSent(int64_t deadline_ns);
  void FailLocked(commsched_status_t status, const std::string& reason);
  std::string MissedFrom(int peer) const;
  void FailIfLeft(int peer);
  // Whether all launch the same (comm_compare.cc).
  uint64_t FirstOpen() const;
  void LogLaunch(const commsched_launch_t& launch);
  void CompareLaunches(const LaunchReport& report, int peer);
  void Suspect(const std::string& reason);
  std::string Name(int peer) const;
  std::string RanksText() const;
  bool Sends() const;
  bool Receives() const;
  bool IsRead() const;
  bool MaySend(int peer) const;
  int64_t TakesUntilNs(int64_t begin_ns, int64_t end_ns) const;
  void GiveUpOnOthers();
  void BeginStop();
  void DropUnposted();
  void DropLocalSends();
  void Stop();

  bool HasDueStep() const;

  // Without it. When a poll of a launch begins, and what it has spent of the
  // processor's time since then.
  int64_t ClockNs(const Operation& operation) const;
  int64_t SpentNs(const Operation& operation, int64_t begin_ns) const;
  // Takes steps that have become possible.
  void Advance(Operation* operation);
  bool TakeStep(Operation* operation, uint32_t kind);
  Outcome Sum(const Operation& operation, const Step& step);

  LaunchTask Task(const commsched_launch_t& launch) const {
    return {launch, layout_, rank_, choices_.chunk_bytes()};
  }
  // Scratch for a launch, and back when it is over.
  Outcome Lend(uint64_t bytes, Scratch* scratch);
  Outcome Allocate(uint64_t bytes, Scratch* scratch);
  Outcome ReserveScratch(uint64_t bytes, uint32_t num_launches);
  void TakeBack(Scratch* scratch);

  uint64_t Tag(int source, uint64_t type) const;
  uint64_t DataTag(const Operation& operation, const Message& message) const;

  Network* const network_;
  const std::string axis_;
  const std::vector<int32_t> ranks_;
  const int rank_;
  const Layout layout_;
  const uint64_t offered_bytes_;  // Of a message that is offered, at least.
  const uint32_t max_members_;
  const std::string id_;
  const bool asks_starts_;
  const int64_t made_ns_;
  uint64_t tags_ = 0;  // Upper bits of every tag.

  // Owned by who launches and polls.
  Choices choices_;
  std::vector<Scratch> spare_;   // The last one is the one that was used last.
  uint64_t expected_bytes_ = 0;  // Of each,
  size_t num_expected_ = 0;      // and of how many, at least.
  std::vector<commsched_piece_t> pieces_;  // Of Sum().

  // Behind the mutex.
  std::vector<Operation> operations_;  // By request; never moved.
  // Likewise: what takes its place, with more room, when its launch is done.
  std::vector<std::unique_ptr<Operation>> grown_;
  std::vector<uint32_t> order_;  // Requests in flight, oldest first.
  LaunchLog log_;
  // What a member has launched, not all of which has been launched here.
  std::optional<LaunchReport> ahead_;
  int ahead_of_ = 0;
  size_t num_early_ = 0;  // Network::ReserveEarly().
  bool has_expected_ = false;
  // This communicator's share of the network's window: its bytes under way, and
  // how many of its launches hold their first sends back.
  uint64_t unsent_bytes_ = 0;
  uint32_t num_held_ = 0;
  Pacer pacer_;
  EarlyBytes early_;
  int num_to_tell_ = 0;  // Peers with told_once_posted.
  uint64_t num_collectives_ = 0;
  // The collective, counted from 1, that has last got something with which this
  // rank could get on, and when.
  uint64_t freed_in_ = 0;
  int64_t freed_ns_ = 0;
  uint64_t num_launches_ = 0;
  std::vector<Peer> peers_;
  Pool<ReadyReceive> ready_pool_;
  // By request: whom it waits for has been asked, the others have not.
  std::vector<bool> may_ask_all_;
  Outcome failure_;
  int64_t failed_ns_ = 0;
  int64_t end_by_ns_ = 0;  // Network::EndByNs(), of when it failed.
  std::string suspicion_;  // A message that failed; "": none.
  int64_t suspicion_deadline_ns_ = 0;
  bool stopped_ = false;
  bool leaves_ = false;
  bool left_ = false;
  const UnsentNotices unsent_;
  std::unique_ptr<GroupJoin> join_;          // Null: this member has joined.
  std::unique_ptr<StartExchange> exchange_;  // Null: nobody asks for starts.
  bool any_asks_starts_ = false;
  MessageId answered_;
  Message answer_message_;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_COMM_H_
