// With whom a rank is connected, and which way: ranks of its host hand each
// other their segments (handover.h), the rest are UCX's endpoints.
#ifndef COMMSCHED_PLUGINS_UCX_NETWORK_ENDPOINTS_H_
#define COMMSCHED_PLUGINS_UCX_NETWORK_ENDPOINTS_H_

#include <ucp/api/ucp.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commsched/plugin.h"
#include "support/outcome.h"
#include "ucx/host/handover.h"
#include "ucx/host/local_links.h"
#include "ucx/host/peer_memory.h"

namespace commsched::ucx {

class Network;

// Connects a rank with those that it is told to, and with those whose card is
// known and that have handed over their segment. Owned by its network, whose
// mutex it needs where nothing else is said. Ranks are world ranks.
class Endpoints {
 public:
  // Ranks of a machine are taken to be on several hosts, `ranks_per_host` on
  // each in their order; 0: they are on one.
  Endpoints(Network* network, const commsched_backend_rank_desc_t& desc,
            uint64_t ranks_per_host);
  Endpoints(const Endpoints&) = delete;
  Endpoints& operator=(const Endpoints&) = delete;

  // ---- While the network is opened ----

  // Before the next two, if ranks of this host share memory: by `links`, which
  // are the network's, and, if `reads`, reading each other's memory where the
  // kernel lets them. PERMISSION_DENIED: this process may not.
  Outcome Share(LocalLinks* links, bool reads);
  void UseWorker(ucp_worker_h worker) { worker_ = worker; }
  // Tells the job's store this rank's card.
  Outcome PutCard();

  // ---- Who is where; any thread, without the mutex ----

  // Equal for ranks that share a host, which is a kernel and a network
  // namespace of it.
  int HostOf(int rank) const { return hosts_[static_cast<size_t>(rank)]; }
  // Ranks of this host, and the number of one among them.
  static constexpr int kNotLocal = -1;
  int num_local() const { return num_local_; }
  int LocalRankOf(int rank) const { return Of(rank).local_rank; }

  // ---- Cards ----

  // What a rank tells others so that they can connect with it; "": it is not
  // known here. By the job's store, or by others who know it.
  static constexpr uint64_t kMostCardBytes = 64 << 10;
  const std::string& CardOf(int peer) const { return Of(peer).card; }
  Outcome Learn(int peer, std::string card);
  // Waits for it: DEADLINE_EXCEEDED. Host's calls only; takes the mutex.
  Outcome AwaitCard(int peer, int64_t deadline_ns);

  // ---- Connecting ----

  // Begins to connect with `peer`, whose card is known: so messages may be sent
  // to it, and go once it is connected. A rank of this host has to make
  // progress until then. Not for callbacks.
  Outcome Connect(int peer);
  bool HasBegun(int peer) const { return Of(peer).has_begun; }
  // Whether it is known which way messages of `peer` come.
  bool IsConnected(int peer) const { return Of(peer).is_connected; }
  // Does what can be done at once for those that hand over, if it is due, and
  // tells communicators of who is connected, or why nobody is any more.
  void Progress() {
    if (IsHandoverDue()) HandOver();
  }
  // For who sleeps: readable when a rank of this host calls, or -1; and whether
  // some are not decided, which wakes nobody.
  int callers_fd() const {
    return hands_over() ? handover_->listener_fd() : -1;
  }
  bool is_handing_over() const { return num_handing_over_ != 0; }
  // Somebody has called. Any thread, without the mutex.
  void SetCalled() { is_called_ = true; }

  // ---- Ways ----

  // Whether anybody can only be reached by UCX: else it makes no progress, and
  // what is received from whomever by it stays as it is until it is canceled.
  bool uses_ucx() const { return uses_ucx_; }
  // Whether messages to `peer` go by its segment, or wait for it.
  bool IsLocal(int peer) const {
    return Of(peer).local_rank != kNotLocal && !Of(peer).is_apart;
  }
  // Of one of this host that is not: why.
  std::string WhyApart(int peer) const {
    return Of(peer).is_apart ? handover_->WhyApart(peer) : "";
  }
  // Null: there is none.
  ucp_ep_h EndpointOf(int peer) const { return Of(peer).endpoint; }
  // A second one, which large launches have for themselves, so that what is
  // small does not wait behind them in a connection. It is open once a first
  // message has gone there, which says nothing.
  struct Bulk final : Receiver {
    ucp_ep_h endpoint = nullptr;  // Null: there is none to be had.
    bool has_begun = false;       // The message has.
    bool is_open = false;
    Message first;

    void OnDone(Message* /*message*/, ucs_status_t status,
                uint64_t /*bytes*/) override {
      is_open = status == UCS_OK;
    }
  };
  // Made when it is first asked for, of a peer with which Connect() has begun.
  // Not for callbacks.
  Bulk* BeginBulk(int peer);
  // Of one that is open.
  ucp_ep_h BulkOf(int peer) const { return Of(peer).bulk->endpoint; }
  // Whether first messages are under way.
  bool OpensBulk() const;
  // Whether this process may read the memory of `peer`, with which Connect()
  // has begun; and copies from it. The latter by any thread, without the mutex.
  // What ReadPart() has read is what was offered if a Read() after it succeeds.
  bool Reads(int peer) const { return Of(peer).readable.pid != 0; }
  Outcome Read(int peer, uint64_t address, void* to, uint64_t bytes) const;
  Outcome ReadPart(int peer, uint64_t address, void* to, uint64_t bytes) const;
  // From now on what others read of this rank's memory fails.
  void TakeBackMemory() {
    memory_value_.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }

 private:
  struct Peer {
    int local_rank = kNotLocal;
    std::string card;
    bool has_begun = false;  // Connect() has.
    bool is_connected = false;
    bool is_apart = false;  // Of this host's: they share no memory.
    ucp_ep_h endpoint = nullptr;
    std::unique_ptr<Bulk> bulk;  // Null: it has not been asked for.
    // The process, if its memory can be read, or none. Constant once Connect()
    // has begun.
    MemoryCard readable;
  };

  Peer& Of(int rank) { return peers_[static_cast<size_t>(rank)]; }
  const Peer& Of(int rank) const { return peers_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(peers_.size()); }
  void FindHosts(const commsched_backend_rank_desc_t& desc,
                 uint64_t ranks_per_host);
  Outcome ConnectByUcx(int peer);
  ucs_status_t CreateEndpoint(int peer, ucp_ep_h* out_endpoint) const;
  void BeginHandover(int peer);
  bool hands_over() const {
    return handover_ != nullptr && handover_failure_.ok();
  }
  bool IsHandoverDue();
  void HandOver();
  Outcome TryHandOver();
  Outcome Decide(int peer, Handover::State state);

  Network* const network_;
  const commsched_oob_t* const oob_;
  const int world_rank_;
  std::vector<int> hosts_;   // By rank.
  std::vector<Peer> peers_;  // Likewise.
  int num_local_ = 0;
  ucp_worker_h worker_ = nullptr;
  LocalLinks* links_ = nullptr;         // Null: there is nobody to share with.
  std::unique_ptr<Handover> handover_;  // Likewise.
  bool reads_ = false;
  // Others find it until this rank's memory may not be read any more.
  std::atomic<uint64_t> memory_value_;
  Outcome handover_failure_;            // Nothing is handed over any more.
  uint32_t num_handing_over_ = 0;       // Ranks that are not decided.
  uint32_t num_rounds_ = 0;             // Of progress.
  std::atomic<bool> is_called_{false};  // Somebody calls, who sleeps has seen.
  bool uses_ucx_ = false;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_NETWORK_ENDPOINTS_H_
