#include "ucx/network/endpoints.h"

#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "ucx/comm.h"
#include "ucx/host/peer_memory.h"
#include "ucx/host/random_word.h"
#include "ucx/network/network.h"
#include "ucx/network/ucx_failure.h"
#include "ucx/process/close_on_exec.h"

namespace commsched::ucx {
namespace {

// How often those who make progress without sleeping look for callers.
constexpr uint32_t kRoundsPerLook = 64;

bool HasHosts(const commsched_backend_rank_desc_t& desc) {
  constexpr uint64_t kNeeded =
      offsetof(commsched_backend_rank_desc_t, networks) + sizeof(desc.networks);
  return desc.struct_size >= kNeeded && desc.hosts != nullptr;
}

// That of the library which the process has, not that of the headers.
struct UcxVersion {
  uint32_t major;
  uint32_t minor;
};

UcxVersion LoadedUcx() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  return {major, minor};
}

std::string Text(UcxVersion version) {
  return std::to_string(version.major) + "." + std::to_string(version.minor);
}

// What a rank tells others. Its address to UCX follows.
struct AddressCard {
  UcxVersion ucx = LoadedUcx();
  MemoryCard memory;
  SegmentCard segment;
};

AddressCard CardIn(const std::string& told) {
  AddressCard card;
  std::memcpy(&card, told.data(), sizeof(card));
  return card;
}

// Releases of one minor version understand each other. What others make of an
// address, and of messages, UCX does not say.
Outcome CompareUcx(int rank, int peer, const std::string& told) {
  const UcxVersion ours = LoadedUcx();
  const UcxVersion theirs = CardIn(told).ucx;
  if (ours.major == theirs.major && ours.minor == theirs.minor) return {};
  return {COMMSCHED_FAILED_PRECONDITION,
          "rank " + std::to_string(peer) + " has UCX " + Text(theirs) +
              ", rank " + std::to_string(rank) + " has " + Text(ours) +
              ": ranks that reach each other by UCX need one version of it"};
}

std::string AddressKey(int rank) {
  return "ucx address of rank " + std::to_string(rank);
}

}  // namespace

Endpoints::Endpoints(Network* network,
                     const commsched_backend_rank_desc_t& desc,
                     uint64_t ranks_per_host)
    : network_(network),
      oob_(desc.oob),
      world_rank_(desc.world_rank),
      peers_(static_cast<size_t>(desc.world_size)),
      memory_value_(RandomWord()) {
  FindHosts(desc, ranks_per_host);
  for (int rank = 0; rank < size(); ++rank) {
    if (HostOf(rank) == HostOf(world_rank_)) Of(rank).local_rank = num_local_++;
  }
}

// Where it is not known that ranks share a host, they do not.
void Endpoints::FindHosts(const commsched_backend_rank_desc_t& desc,
                          uint64_t ranks_per_host) {
  const bool knows_hosts = HasHosts(desc);
  std::map<std::string, int> numbers;
  for (int rank = 0; rank < size(); ++rank) {
    std::string host = "rank " + std::to_string(rank);
    if (!knows_hosts) {
      host = "this one";  // All ranks are of one process.
    } else if (*desc.hosts[rank] != '\0') {
      host = std::string(desc.hosts[rank]) + '\n' + desc.networks[rank];
    }
    if (ranks_per_host != 0) {
      const uint64_t part = static_cast<uint64_t>(rank) / ranks_per_host;
      host += "\npart " + std::to_string(part);
    }
    hosts_.push_back(numbers.try_emplace(host, static_cast<int>(numbers.size()))
                         .first->second);
  }
  uses_ucx_ = numbers.size() > 1;
}

Outcome Endpoints::Share(LocalLinks* links, bool reads) {
  Outcome outcome = Handover::Open(world_rank_, size(), links->segment(),
                                   links->event_fd(), &handover_);
  if (!outcome.ok()) return outcome;
  links_ = links;
  reads_ = reads;
  return {};
}

// ---- Cards ----

Outcome Endpoints::PutCard() {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  const ucs_status_t status = ucp_worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return UcxFailure("ucp_worker_get_address", status);
  AddressCard card;
  if (handover_ != nullptr) {
    card.memory = OwnMemoryCard(memory_value_);
    card.segment = handover_->card();
  }
  std::string value(reinterpret_cast<const char*>(&card), sizeof(card));
  value.append(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  Of(world_rank_).card = value;
  char message[512] = "";
  const commsched_status_t code =
      oob_->put(oob_->user, AddressKey(world_rank_).c_str(), value.data(),
                value.size(), message, sizeof(message));
  return {code, message};
}

Outcome Endpoints::Learn(int peer, std::string card) {
  if (card.size() <= sizeof(AddressCard)) {
    return {COMMSCHED_INTERNAL, "rank " + std::to_string(peer) +
                                    ": its address has " +
                                    std::to_string(card.size()) + " bytes"};
  }
  std::string& known = Of(peer).card;
  if (known.empty()) known = std::move(card);
  is_called_ = true;  // By it, perhaps.
  return {};
}

Outcome Endpoints::AwaitCard(int peer, int64_t deadline_ns) {
  {
    const std::lock_guard<std::mutex> lock(network_->mu());
    if (!CardOf(peer).empty()) return {};
  }
  std::string told(kMostCardBytes, '\0');
  uint64_t bytes = told.size();
  char message[512] = "";
  const commsched_status_t code =
      oob_->get(oob_->user, AddressKey(peer).c_str(), told.data(), &bytes,
                deadline_ns, message, sizeof(message));
  if (code != COMMSCHED_OK) return {code, message};
  told.resize(bytes);
  told.shrink_to_fit();
  const std::lock_guard<std::mutex> lock(network_->mu());
  return Learn(peer, std::move(told));
}

// ---- Connecting ----

Outcome Endpoints::Connect(int peer) {
  if (Of(peer).has_begun) return {};
  if (CardOf(peer).empty()) {
    return {COMMSCHED_INTERNAL,
            "rank " + std::to_string(peer) + ": its address is not known"};
  }
  if (handover_ == nullptr || HostOf(peer) != HostOf(world_rank_)) {
    return ConnectByUcx(peer);
  }
  if (!handover_failure_.ok()) return handover_failure_;
  BeginHandover(peer);
  network_->Interrupt();  // Who sleeps does not know of more to be watched.
  return {};
}

Outcome Endpoints::ConnectByUcx(int peer) {
  Outcome same = CompareUcx(world_rank_, peer, CardOf(peer));
  if (!same.ok()) return same;
  Peer& other = Of(peer);
  uses_ucx_ = true;
  const ucs_status_t status = CreateEndpoint(peer, &other.endpoint);
  other.has_begun = other.is_connected = status == UCS_OK;
  if (status == UCS_OK) return {};
  other.endpoint = nullptr;
  return UcxFailure("rank " + std::to_string(peer) + ": ucp_ep_create", status);
}

ucs_status_t Endpoints::CreateEndpoint(int peer, ucp_ep_h* out_endpoint) const {
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  params.address = reinterpret_cast<const ucp_address_t*>(Of(peer).card.data() +
                                                          sizeof(AddressCard));
  return ucp_ep_create(worker_, &params, out_endpoint);
}

Endpoints::Bulk* Endpoints::BeginBulk(int peer) {
  std::unique_ptr<Bulk>& bulk = Of(peer).bulk;
  if (bulk != nullptr) return bulk.get();
  bulk = std::make_unique<Bulk>();
  const CloseOnExec close_on_exec;
  if (CreateEndpoint(peer, &bulk->endpoint) != UCS_OK) bulk->endpoint = nullptr;
  return bulk.get();
}

bool Endpoints::OpensBulk() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return peer.bulk != nullptr && peer.bulk->first.IsUnderWay();
  });
}

void Endpoints::BeginHandover(int peer) {
  Peer& other = Of(peer);
  const AddressCard card = CardIn(other.card);
  const bool reads = reads_ && CanRead(card.memory);
  if (reads) other.readable = card.memory;
  other.has_begun = true;
  handover_->Begin(peer, card.segment);
  ++num_handing_over_;
}

// Who sleeps learns of callers by that.
bool Endpoints::IsHandoverDue() {
  if (!hands_over()) return false;
  if (num_handing_over_ != 0 || is_called_) {
    is_called_ = false;
    return true;
  }
  if (++num_rounds_ % kRoundsPerLook != 0) return false;
  pollfd callers = {handover_->listener_fd(), POLLIN, 0};
  return poll(&callers, 1, 0) > 0;
}

// What is scarce then is scarce for all that this rank does.
void Endpoints::HandOver() {
  handover_failure_ = TryHandOver();
  if (handover_failure_.ok()) return;
  num_handing_over_ = 0;
  for (Comm* const comm : network_->comms()) {
    comm->Abort(handover_failure_.code, handover_failure_.reason.c_str());
  }
}

Outcome Endpoints::TryHandOver() {
  bool is_changed = false;
  for (bool any_begun = true; any_begun;) {
    Outcome outcome = handover_->Step(/*wait_ms=*/0);
    any_begun = false;
    for (int rank = 0; rank < size() && outcome.ok(); ++rank) {
      const Peer& peer = Of(rank);
      if (peer.local_rank == kNotLocal || peer.is_connected) continue;
      if (!peer.has_begun && !peer.card.empty() && handover_->HasCalled(rank)) {
        BeginHandover(rank);
        any_begun = true;
      }
      const Handover::State state = handover_->StateOf(rank);
      if (state != Handover::State::kShared &&
          state != Handover::State::kApart) {
        continue;
      }
      outcome = Decide(rank, state);
      is_changed = true;
    }
    if (!outcome.ok()) return outcome;
  }
  if (!is_changed) return {};
  for (Comm* const comm : network_->comms()) comm->OnConnected();
  network_->Wake();
  return {};
}

Outcome Endpoints::Decide(int peer, Handover::State state) {
  Peer& other = Of(peer);
  --num_handing_over_;
  other.is_connected = true;
  if (state == Handover::State::kShared) {
    links_->Add(other.local_rank, handover_->TakeParts(peer));
    return {};
  }
  other.is_apart = true;
  Outcome outcome = ConnectByUcx(peer);
  LinkedQueue<Message> waiting = links_->TakeUnsent(other.local_rank);
  while (outcome.ok() && !waiting.empty()) {
    Message* const message = waiting.front();
    waiting.Pop();
    network_->Send(peer, message->tag, message, message->sent,
                   message->sent_bytes);
  }
  return outcome;
}

Outcome Endpoints::Read(int peer, uint64_t address, void* to,
                        uint64_t bytes) const {
  return ReadMemory(Of(peer).readable, address, to, bytes);
}

Outcome Endpoints::ReadPart(int peer, uint64_t address, void* to,
                            uint64_t bytes) const {
  return ReadMemory(static_cast<pid_t>(Of(peer).readable.pid), address, to,
                    bytes);
}

}  // namespace commsched::ucx
