// How a rank's messages reach others: those of its host by shared memory
// (local_links.h), the rest by UCX, with one worker, as they are connected
// (endpoints.h); and how threads sleep until something arrives.
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
#include "support/outcome.h"
#include "ucx/algorithms/choice.h"
#include "ucx/host/local_links.h"
#include "ucx/message.h"
#include "ucx/network/endpoints.h"
#include "ucx/network/notices.h"

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
  // the oldest launch of each may begin to send; and none to a rank that has
  // been sent so much of collectives that it has not posted.
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
  // Messages of so many bytes and more are read; 0: OfferedBytes().
  uint64_t read_bytes = 0;
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
  // From here on messages in such a group are offered to be read.
  uint64_t OfferedBytesOf(const Layout& layout) const {
    return read_bytes_ != 0 ? read_bytes_ : OfferedBytes(layout.num_hosts());
  }
  bool IsWindowFull() const { return unsent_bytes_ >= window_bytes_; }
  uint64_t window_bytes() const { return window_bytes_; }
  // Launches that wait for room in the window: who makes room wakes the host.
  void AddHeld() { ++num_held_; }
  void TakeHeld() { --num_held_; }
  bool HasHeld() const { return num_held_ != 0; }
  // Whether who sleeps may let bytes gather (gathering.h).
  bool gathers() const { return gathering_ns_ != 0; }
  // Up to here UCX sends without asking, and reads what is sent as it likes. 0:
  // it is not known.
  uint64_t eager_bytes() const { return eager_bytes_; }

  // Whether messages to world rank `peer` go by its segment, or wait for it.
  bool GoesByLink(int peer) const {
    return links_ != nullptr && endpoints_.IsLocal(peer);
  }

  // With whom this rank is connected.
  Endpoints* endpoints() { return &endpoints_; }
  const Endpoints* endpoints() const { return &endpoints_; }
  Notices* notices() { return &notices_; }

  // Starts a message to world rank `peer`, with which Endpoints::Connect() has
  // begun, or from one that is connected. It may be done, and its receiver told
  // so, before this returns. What is sent is `bytes` at `data`, which stay
  // until then.
  void Send(int peer, uint64_t tag, Message* message, const void* data,
            uint64_t bytes);
  // Likewise, by a connection that what goes by Send() does not wait for, once
  // PrepareBulk() has said that there is one. Those of one tag, while they are
  // under way, go by one of the two.
  void SendBulk(int peer, uint64_t tag, Message* message, const void* data,
                uint64_t bytes);
  // Whether SendBulk() is not Send(): by a network that shares a link among
  // connections, as TCP does.
  bool HasBulk(int peer) const {
    return eager_bytes_ != 0 && !GoesByLink(peer);
  }
  // Begins to make it, if that has not been done. False: it is not there yet,
  // or never is. Where SendBulk() is Send() it is there.
  bool PrepareBulk(int peer);
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
          const commsched_host_t* host, const NetworkOptions& options);
  Outcome OpenLocal(NetworkOptions::Local local);
  Outcome Open(const NetworkOptions& options);
  Outcome OpenContext(const NetworkOptions& options);
  Outcome OpenWorker();
  void DropUnread();
  void Abandon();
  bool HasUnsentLocally() const;
  void ReceiveByUcx(uint64_t tag, uint64_t mask, Message* message);
  void SendBy(ucp_ep_h endpoint, uint64_t tag, Message* message,
              const void* data, uint64_t bytes);
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
  void (*const wake_)(void* user);
  void* const wake_user_;
  const int world_rank_;
  const int world_size_;
  const bool one_machine_;
  const int64_t spin_ns_;
  const uint64_t window_bytes_;
  const uint64_t read_bytes_;
  ChoiceOptions choice_;
  uint64_t eager_bytes_ = 0;
  int64_t gathering_ns_ = 0;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;

  std::vector<std::weak_ptr<Comm>> joining_;

  std::mutex mu_;                      // Guards the worker and what follows.
  std::unique_ptr<LocalLinks> links_;  // Null: there is nobody to share with.
  Endpoints endpoints_;
  Notices notices_;
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
