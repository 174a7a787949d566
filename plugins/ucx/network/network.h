// How a rank reaches others: those of its host by shared memory
// (local_links.h), the rest by UCX, with one worker and an endpoint per peer
// that it exchanges messages with; and how threads sleep until something
// arrives.
#ifndef COMMSCHED_PLUGINS_UCX_NETWORK_NETWORK_H_
#define COMMSCHED_PLUGINS_UCX_NETWORK_NETWORK_H_

#include <ucp/api/ucp.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "commsched/plugin.h"
#include "ucx/algorithms/choice.h"
#include "ucx/host/handover.h"
#include "ucx/host/local_links.h"
#include "ucx/host/peer_memory.h"
#include "ucx/host/random_word.h"
#include "ucx/message.h"
#include "ucx/network/notices.h"
#include "ucx/outcome.h"

namespace commsched::ucx {

class Comm;

struct NetworkOptions {
  std::string tls;          // UCX_TLS; "": as the environment says.
  std::string net_devices;  // UCX_NET_DEVICES, likewise.
  int64_t spin_ns = 0;      // How long a thread polls before it sleeps.
  // What is reduced, or sent on, at once, while the next one travels; and how
  // algorithms are chosen.
  ChoiceOptions choice;
  // While collectives still have so much to send, of all communicators, only
  // the oldest launch of each may begin to send.
  uint64_t window_bytes = 8 << 20;
  // Ranks of a machine are taken to be on several hosts, so many on each in
  // their order, as if links were between them. 0: they are on one.
  uint64_t ranks_per_host = 0;
  // How ranks of one host reach each other.
  enum class Local {
    kRead,  // By segments, and large messages are read from the peer's memory
            // where the kernel lets them be,
    kShm,   // by segments alone,
    kNet,   // or by UCX, as others.
  };
  Local local = Local::kRead;
};

// Thread-safe where it says so; the rest needs the mutex.
class Network {
 public:
  static Outcome Create(const commsched_backend_rank_desc_t& desc,
                        const commsched_host_t* host,
                        const NetworkOptions& options,
                        std::unique_ptr<Network>* out);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const commsched_host_t* host() const { return host_; }
  int world_rank() const { return world_rank_; }
  int world_size() const { return world_size_; }
  std::mutex& mu() { return mu_; }
  // Of all communicators.
  const ChoiceOptions& choice() const { return choice_; }
  // The window: bytes of collectives of all communicators that Send() has been
  // given and that are not out yet, be it to ranks of this host. Offers do not
  // count, since peers read what is offered by themselves, nor does what a
  // communicator that has failed leaves behind.
  void AddUnsent(uint64_t bytes) { unsent_bytes_ += bytes; }
  void TakeUnsent(uint64_t bytes) { unsent_bytes_ -= bytes; }
  bool IsWindowFull() const { return unsent_bytes_ >= window_bytes_; }
  // Launches that wait for room in the window: who makes room wakes the host.
  void AddHeld() { ++num_held_; }
  void TakeHeld() { --num_held_; }
  bool HasHeld() const { return num_held_ != 0; }
  // Equal for world ranks that share a host, which is a kernel and a network
  // namespace of it.
  int HostOf(int rank) const { return hosts_[static_cast<size_t>(rank)]; }
  // Whether who sleeps may let bytes gather (gathering.h).
  bool gathers() const { return gathering_ns_ != 0; }
  // Up to here UCX sends without asking, and reads what is sent as it likes. 0:
  // it is not known.
  uint64_t eager_bytes() const { return eager_bytes_; }

  // What a rank tells others so that they can connect with it; "": it is not
  // known here. By the job's store, or by others who know it.
  static constexpr uint64_t kMostCardBytes = 64 << 10;
  const std::string& CardOf(int peer) const {
    return cards_[static_cast<size_t>(peer)];
  }
  Outcome Learn(int peer, std::string card);
  // Waits for it: DEADLINE_EXCEEDED. Host's calls only; takes the mutex.
  Outcome AwaitCard(int peer, int64_t deadline_ns);

  // Begins to connect with world rank `peer`, whose card is known: so messages
  // may be sent to it, and go once it is connected. A rank of this host has to
  // make progress until then. Not for callbacks.
  Outcome Connect(int peer);
  bool HasBegun(int peer) const {
    return has_begun_[static_cast<size_t>(peer)];
  }
  // Whether it is known which way messages of world rank `peer` come.
  bool IsConnected(int peer) const {
    return is_connected_[static_cast<size_t>(peer)];
  }
  Notices* notices() { return &notices_; }

  // Whether this process may read the memory of world rank `peer`, with which
  // Connect() has begun.
  bool Reads(int peer) const {
    return readable_[static_cast<size_t>(peer)].pid != 0;
  }
  // Copies from its memory. Any thread, without the mutex. What ReadPart() has
  // read is what was offered if a Read() after it succeeds.
  Outcome Read(int peer, uint64_t address, void* to, uint64_t bytes) const;
  Outcome ReadPart(int peer, uint64_t address, void* to, uint64_t bytes) const;

  // Starts a message to world rank `peer`, with which Connect() has begun, or
  // from one that is connected. It may be done, and its receiver told so,
  // before this returns. What is sent is `bytes` at `data`, which stay until
  // then.
  void Send(int peer, uint64_t tag, Message* message, const void* data,
            uint64_t bytes);
  void Receive(int peer, uint64_t tag, Message* message);
  // From whomever (kAnySource), once by UCX; what comes from ranks of this host
  // is heard until it is canceled (Receiver::OnHeard).
  void ReceiveAny(uint64_t tag, Message* message);
  // Receives that nothing has arrived for are done soon, as canceled, and all
  // messages from and to ranks of this host at once.
  void Cancel(Message* message);
  // Room for so many more messages that may come before their receives, and
  // back.
  void ReserveEarly(size_t num_messages) {
    if (links_ != nullptr) links_->Reserve(num_messages);
  }
  void GiveBackEarly(size_t num_messages) {
    if (links_ != nullptr) links_->GiveBack(num_messages);
  }
  // Until nothing more is to be done at once, or much has been. Whether UCX had
  // anything to do.
  bool Progress();
  // From now on nothing makes progress, because UCX would touch memory that its
  // owner has back. What is sent and received hereafter stays under way, but
  // for what finds room in the segment of a rank of this host at once, and what
  // has already come from one.
  void Stop();
  bool stopped() const { return stopped_; }
  // World ranks that did not answer when a communicator was left.
  void SetAbsent(int peer) { absent_[static_cast<size_t>(peer)] = true; }
  bool IsAbsent(int peer) const { return absent_[static_cast<size_t>(peer)]; }
  // Those that did not take what they were told when one was left.
  void SetDeaf(int peer) { deaf_[static_cast<size_t>(peer)] = true; }
  bool IsDeaf(int peer) const { return deaf_[static_cast<size_t>(peer)]; }
  // Whether all that this rank has sent, to whomever, has been handed over to
  // the peers' side or to the kernel. Looks once; `*flush`, null at first, is
  // kept by the caller from look to look, until this is true or DropFlush().
  bool IsFlushed(void** flush);
  void DropFlush(void** flush);

  // Communicators that have not been left.
  void Add(Comm* comm) { comms_.push_back(comm); }
  void Remove(Comm* comm) { std::erase(comms_, comm); }
  const std::vector<Comm*>& comms() const { return comms_; }
  // Until when a communicator made at `made_ns` that fails now may wait for
  // others, stopping and leaving together: a second, which those have in common
  // that fail within that second or the next, since a session may fail one
  // after the other; but for those that were made after that second had begun.
  int64_t EndByNs(int64_t made_ns);

  // Takes the id of a communicator and the tags that it gets, which are the
  // same on all members: kCommBits (tags.h). False if this rank has a
  // communicator of that id, or whose tags are the same.
  bool TakeId(const std::string& id, uint64_t* tags);
  void GiveId(const std::string& id, uint64_t tags);
  // Communicators that are made and not connected yet; host's calls only.
  void WillJoin(std::weak_ptr<Comm> comm) {
    joining_.push_back(std::move(comm));
  }
  std::vector<std::weak_ptr<Comm>> TakeJoining() {
    return std::exchange(joining_, {});
  }
  // Keeps what UCX may still refer to until the network is gone, or for ever if
  // a message is under way even then.
  void Bury(std::shared_ptr<Comm> comm) { buried_.push_back(std::move(comm)); }

  // Tells the host that there may be news.
  void Wake() const { wake_(wake_user_); }
  // commsched_backend_t::wait and interrupt. Thread-safe, without the mutex;
  // one thread waits at a time.
  void Wait(int64_t deadline_ns);
  void Interrupt();

 private:
  Network(const commsched_backend_rank_desc_t& desc,
          const commsched_host_t* host)
      : host_(host),
        oob_(desc.oob),
        wake_(desc.wake),
        wake_user_(desc.wake_user),
        world_rank_(desc.world_rank),
        world_size_(desc.world_size),
        one_machine_(desc.local_size == desc.world_size),
        local_ranks_(static_cast<size_t>(desc.world_size), kNotLocal),
        notices_(this),
        cards_(static_cast<size_t>(desc.world_size)),
        has_begun_(static_cast<size_t>(desc.world_size)),
        is_connected_(static_cast<size_t>(desc.world_size)),
        is_apart_(static_cast<size_t>(desc.world_size)),
        endpoints_(static_cast<size_t>(desc.world_size)),
        memory_value_(RandomWord()),
        readable_(static_cast<size_t>(desc.world_size)),
        absent_(static_cast<size_t>(desc.world_size)),
        deaf_(static_cast<size_t>(desc.world_size)) {}
  void FindHosts(const commsched_backend_rank_desc_t& desc,
                 uint64_t ranks_per_host);
  Outcome Open(const NetworkOptions& options);
  Outcome OpenLocal();
  Outcome PutAddress();
  void DropUnread();
  void Abandon();
  Outcome ConnectByUcx(int peer);
  void BeginHandover(int peer);
  void HandOver();
  Outcome TryHandOver();
  Outcome Decide(int peer, Handover::State state);
  // Whether messages to world rank `peer` go by its segment, or wait for it.
  bool GoesByLink(int peer) const {
    const auto index = static_cast<size_t>(peer);
    return links_ != nullptr && local_ranks_[index] != kNotLocal &&
           !is_apart_[index];
  }
  bool IsHandoverDue();
  bool HasUnsentLocally() const;
  void ReceiveByUcx(uint64_t tag, uint64_t mask, Message* message);
  void Started(ucs_status_ptr_t request, Message* message);
  // Whether all launches that are in flight, if any, are in no hurry.
  bool MayGather() const;
  // UCS_ERR_BUSY: there is something to do.
  ucs_status_t Arm(bool with_ucx);
  // What ends a sleep besides interrupts and ranks of this host.
  struct Watched {
    bool with_ucx = false;
    bool gathers = false;  // It ends once bytes have gathered.
    int callers_fd = -1;
    bool is_handing_over = false;  // It ends soon.
  };
  void Sleep(const Watched& watched, int64_t rest_ns);
  bool TakeInterrupt() {
    return interrupted_.exchange(false, std::memory_order_seq_cst);
  }
  int64_t NowNs() const { return host_->now_ns(host_->user); }

  const commsched_host_t* const host_;
  const commsched_oob_t* const oob_;
  void (*const wake_)(void* user);
  void* const wake_user_;
  const int world_rank_;
  const int world_size_;
  const bool one_machine_;
  std::vector<int> hosts_;  // By world rank.
  // By world rank, its number among the ranks of this host.
  static constexpr int kNotLocal = -1;
  std::vector<int> local_ranks_;
  int64_t spin_ns_ = 0;
  ChoiceOptions choice_;
  uint64_t window_bytes_ = 0;
  uint64_t eager_bytes_ = 0;
  int64_t gathering_ns_ = 0;
  NetworkOptions::Local local_ = NetworkOptions::Local::kRead;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;

  std::vector<std::weak_ptr<Comm>> joining_;

  std::mutex mu_;                       // Guards the worker and what follows.
  std::unique_ptr<LocalLinks> links_;   // Null: there is nobody to share with.
  std::unique_ptr<Handover> handover_;  // Likewise.
  Outcome handover_failure_;            // Nothing is handed over any more.
  uint32_t num_handing_over_ = 0;       // Ranks that are not decided.
  uint32_t num_rounds_ = 0;             // Of progress.
  std::atomic<bool> is_called_{false};  // Somebody calls, who sleeps has seen.
  Notices notices_;
  // Whether anybody can only be reached by UCX: else it makes no progress, and
  // what ReceiveAny() posts stays as it is until it is canceled.
  bool uses_ucx_ = false;
  // By world rank.
  std::vector<std::string> cards_;
  std::vector<bool> has_begun_;  // Connect() has.
  std::vector<bool> is_connected_;
  std::vector<bool> is_apart_;       // Of this host's: they share no memory.
  std::vector<ucp_ep_h> endpoints_;  // Null: there is none.
  // Others find it until this rank's memory may not be read any more.
  std::atomic<uint64_t> memory_value_;
  // By world rank: the process, if its memory can be read, or none. Constant
  // once Connect() has begun.
  std::vector<MemoryCard> readable_;
  std::vector<bool> absent_;  // By world rank.
  std::vector<bool> deaf_;    // Likewise.
  std::vector<Comm*> comms_;
  int64_t end_by_ns_ = 0;
  std::map<std::string, uint64_t> uses_;  // How often an id was taken.
  std::set<std::string> ids_;
  std::set<uint64_t> tags_;
  std::vector<std::shared_ptr<Comm>> buried_;
  bool stopped_ = false;
  uint64_t unsent_bytes_ = 0;
  uint32_t num_held_ = 0;

  // Who interrupts sets the first and then looks at the second; who waits does
  // it the other way round. So one sees the other.
  std::atomic<bool> interrupted_{false};
  std::atomic<bool> sleeps_{false};
  int interrupt_fd_ = -1;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_NETWORK_NETWORK_H_
