#include "ucx/network/network.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <ucs/config/global_opts.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "ucx/comm.h"
#include "ucx/network/gathering.h"
#include "ucx/network/resources.h"
#include "ucx/process/close_on_exec.h"
#include "ucx/tags.h"

namespace commsched::ucx {
namespace {

// How long all that follows a failure may wait for others.
constexpr int64_t kEndNs = int64_t{1} * 1000 * 1000 * 1000;
// Rounds of progress at once. Where memory is short UCX may report work for
// ever that it cannot do.
constexpr int kMaxRounds = 4096;
// How often those who make progress without sleeping look for callers.
constexpr uint32_t kRoundsPerLook = 64;
// How long who hands over sleeps: not all that happens then wakes it.
constexpr int64_t kHandingOverNs = int64_t{1} * 1000 * 1000;
// What is read to be dropped.
constexpr uint64_t kMaxUnreadBytes = 1024;
// Ranks of a host need none of it (local_links.h), and it would take room in
// /dev/shm, where names stay when a process is killed.
constexpr char kDefaultTls[] = "^sm";

// Over TCP the reply that a large message waits for (rendezvous) queues behind
// the data that goes the other way, chunk after chunk: half of a link's
// bandwidth is lost. So chunks go at once, and what is larger, which asks but
// once, is received where it belongs. Segments of 8 KiB, which is UCX's own
// choice, cost twice the time of the processor.
constexpr char kTcpSegment[] = "64k";
// What a connection to another host may hold that is not out yet. The kernel's
// own choice is several MB, so that what is sent to several peers one after the
// other (pacer.h) would be on its way at once after all.
constexpr char kTcpSendBuffer[] = "256k";
// Between processes of one machine there is no link to be lost: from here on
// the copy that rendezvous saves costs more than its reply.
constexpr uint64_t kLocalEagerBytes = 384 << 10;

// Where there are such devices, UCX knows best how large messages go.
bool HasRdma() {
  std::error_code error;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband",
                                                    error);
  return !error && devices != std::filesystem::directory_iterator();
}

Outcome Failed(const char* what, ucs_status_t status) {
  const bool is_scarcity = status == UCS_ERR_NO_MEMORY ||
                           status == UCS_ERR_NO_RESOURCE ||
                           status == UCS_ERR_EXCEEDS_LIMIT;
  return {is_scarcity ? COMMSCHED_RESOURCE_EXHAUSTED : COMMSCHED_UNAVAILABLE,
          std::string(what) + ": " + ucs_status_string(status)};
}

// Those of the job, if it has any.
LinkProfile LinksOf(const commsched_backend_rank_desc_t& desc) {
  constexpr uint64_t kNeeded =
      offsetof(commsched_backend_rank_desc_t, links) + sizeof(desc.links);
  const bool has_links = desc.struct_size >= kNeeded && desc.links != nullptr;
  return has_links ? *desc.links : DefaultLinkProfile();
}

bool HasHosts(const commsched_backend_rank_desc_t& desc) {
  constexpr uint64_t kNeeded =
      offsetof(commsched_backend_rank_desc_t, networks) + sizeof(desc.networks);
  return desc.struct_size >= kNeeded && desc.hosts != nullptr;
}

// While a rank is opened. Names what the environment asks of UCX.
Outcome OpenFailed(const char* what, ucs_status_t status) {
  Outcome failed = Failed(what, status);
  const char* const tls = getenv("UCX_TLS");
  if (tls != nullptr) failed.reason += std::string(", with UCX_TLS=") + tls;
  return failed;
}

// What a rank tells others. Its address to UCX follows.
struct AddressCard {
  MemoryCard memory;
  SegmentCard segment;
};

AddressCard CardIn(const std::string& told) {
  AddressCard card;
  std::memcpy(&card, told.data(), sizeof(card));
  return card;
}

std::string AddressKey(int rank) {
  return "ucx address of rank " + std::to_string(rank);
}

// Of what belongs to a transport, UCX 1.13 takes the name without its prefix,
// and later versions take it with it. Names that UCX does not know it ignores.
ucs_status_t Modify(ucp_config_t* config, const std::string& name,
                    const std::string& value) {
  const std::string prefix = "TCP_";
  const ucs_status_t status =
      ucp_config_modify(config, name.c_str(), value.c_str());
  if (status != UCS_OK || !name.starts_with(prefix)) return status;
  return ucp_config_modify(config, name.c_str() + prefix.size(), value.c_str());
}

void OnSent(void* request, ucs_status_t status, void* user) {
  auto* message = static_cast<Message*>(user);
  message->request = nullptr;
  ucp_request_free(request);
  message->receiver->OnDone(message, status, 0);
}

void OnReceived(void* request, ucs_status_t status,
                const ucp_tag_recv_info_t* info, void* user) {
  auto* message = static_cast<Message*>(user);
  const uint64_t bytes = status == UCS_OK ? info->length : 0;
  message->request = nullptr;
  ++message->num_posts;       // It is done.
  ucp_request_free(request);  // `info` is in it.
  message->receiver->OnDone(message, status, bytes);
}

}  // namespace

Outcome Network::Create(const commsched_backend_rank_desc_t& desc,
                        const commsched_host_t* host,
                        const NetworkOptions& options,
                        std::unique_ptr<Network>* out) {
  std::unique_ptr<Network> network(new Network(desc, host));
  network->FindHosts(desc, options.ranks_per_host);
  network->local_ = options.local;
  network->choice_ = options.choice;
  network->choice_.links = LinksOf(desc);
  network->gathering_ns_ = GatheringNs(network->choice_.links.network);
  Outcome outcome = network->OpenLocal();
  if (outcome.ok()) outcome = network->Open(options);
  if (outcome.ok()) outcome = network->PutAddress();
  if (outcome.ok()) network->notices_.Begin();
  if (outcome.ok()) *out = std::move(network);
  return outcome;
}

// Where it is not known that ranks share a host, they do not.
void Network::FindHosts(const commsched_backend_rank_desc_t& desc,
                        uint64_t ranks_per_host) {
  const bool knows_hosts = HasHosts(desc);
  std::map<std::string, int> numbers;
  for (int rank = 0; rank < world_size_; ++rank) {
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

Outcome Network::OpenLocal() {
  int num_local = 0;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (HostOf(rank) != HostOf(world_rank_)) continue;
    local_ranks_[static_cast<size_t>(rank)] = num_local++;
  }
  if (local_ == NetworkOptions::Local::kNet || num_local < 2 ||
      num_local > kMostBellRanks) {
    return {};
  }
  Outcome outcome = LocalLinks::Create(
      local_ranks_[static_cast<size_t>(world_rank_)], num_local, &links_);
  if (outcome.ok()) {
    outcome = Handover::Open(world_rank_, world_size_, links_->segment(),
                             links_->event_fd(), &handover_);
  }
  if (outcome.code != COMMSCHED_PERMISSION_DENIED) return outcome;
  links_.reset();  // All go by UCX.
  return {};
}

Outcome Network::Open(const NetworkOptions& options) {
  const CloseOnExec close_on_exec;
  spin_ns_ = options.spin_ns;
  window_bytes_ = options.window_bytes;
  // What a broken communicator leaves behind is worth a warning to UCX.
  if (getenv("UCX_LOG_LEVEL") == nullptr) {
    ucs_global_opts_set_value("LOG_LEVEL", "error");
  }
  const Outcome enough = CheckResources();
  if (!enough.ok()) return enough;
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return Failed("ucp_config_read", status);
  std::string tls = options.tls;
  if (tls.empty() && getenv("UCX_TLS") == nullptr) tls = kDefaultTls;
  const bool asks_ucx = HasRdma() || getenv("UCX_RNDV_THRESH") != nullptr;
  eager_bytes_ = choice_.chunk_bytes * 3 / 2;
  if (one_machine_) eager_bytes_ = std::min(eager_bytes_, kLocalEagerBytes);
  if (asks_ucx) eager_bytes_ = 0;
  const std::string threshold = std::to_string(eager_bytes_);
  struct Setting {
    const char* name;
    const char* variable;  // What a user says counts.
    std::string value;
  };
  const Setting settings[] = {
      {"TLS", "", tls},
      {"NET_DEVICES", "", options.net_devices},
      {"RNDV_THRESH", "", asks_ucx ? "" : threshold},
      {"TCP_SNDBUF", "UCX_TCP_SNDBUF",
       one_machine_ || world_size_ == 2 ? "" : kTcpSendBuffer},
      // Else who connects to a host that is cut off stands still for minutes.
      {"TCP_CONN_NB", "UCX_TCP_CONN_NB", "y"},
      {"TCP_TX_SEG_SIZE", "UCX_TCP_TX_SEG_SIZE", kTcpSegment},
      {"TCP_RX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE", kTcpSegment}};
  for (const auto& [name, variable, value] : settings) {
    if (value.empty() || getenv(variable) != nullptr) continue;
    if (status == UCS_OK) status = Modify(config, name, value);
  }
  if (status == UCS_OK) {
    ucp_params_t params = {};
    params.field_mask = UCP_PARAM_FIELD_FEATURES |
                        UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                        UCP_PARAM_FIELD_NAME;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    params.estimated_num_eps = static_cast<size_t>(world_size_);
    params.name = "commsched";
    status = ucp_init(&params, config, &context_);
  }
  ucp_config_release(config);
  if (status != UCS_OK) return OpenFailed("ucp_init", status);
  ucp_worker_params_t params = {};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  status = ucp_worker_create(context_, &params, &worker_);
  // UCX does not say that there is no thread, or no descriptor.
  if (status == UCS_ERR_IO_ERROR) {
    return {COMMSCHED_RESOURCE_EXHAUSTED,
            "ucp_worker_create: UCX cannot start its thread, or open a "
            "descriptor (" +
                std::string(ucs_status_string(status)) + ")"};
  }
  if (status != UCS_OK) return OpenFailed("ucp_worker_create", status);
  status = ucp_worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) return OpenFailed("ucp_worker_get_efd", status);
  interrupt_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (interrupt_fd_ < 0) {
    return {COMMSCHED_RESOURCE_EXHAUSTED,
            "no descriptor is left to be woken by"};
  }
  return {};
}

Outcome Network::PutAddress() {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  const ucs_status_t status = ucp_worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return Failed("ucp_worker_get_address", status);
  AddressCard card;
  if (handover_ != nullptr) {
    card.memory = OwnMemoryCard(memory_value_);
    card.segment = handover_->card();
  }
  std::string value(reinterpret_cast<const char*>(&card), sizeof(card));
  value.append(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  cards_[static_cast<size_t>(world_rank_)] = value;
  char message[512] = "";
  const commsched_status_t code =
      oob_->put(oob_->user, AddressKey(world_rank_).c_str(), value.data(),
                value.size(), message, sizeof(message));
  return {code, message};
}

Network::~Network() {
  if (worker_ != nullptr) notices_.End();
  links_.reset();
  if (interrupt_fd_ >= 0) close(interrupt_fd_);
  if (worker_ != nullptr && !stopped_) DropUnread();
  const bool sends =
      std::any_of(buried_.begin(), buried_.end(),
                  [](const auto& comm) { return comm->IsUnderWay(); });
  if (stopped_ || sends) {
    Abandon();
    return;
  }
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

// After a failure messages may be under way that never end, as their receiver
// is gone or does not take them any more. Only more progress would let go of
// what they hold, and that could touch memory which its owner has back. From
// version 1.18 on UCX ends the process if a worker is destroyed with such
// messages; so the worker stays, uncalled, until the process ends.
void Network::Abandon() {
  struct Abandoned {
    ucp_context_h context;
    ucp_worker_h worker;
    // Who the messages belong to.
    std::vector<std::shared_ptr<Comm>> comms;
    Notices::Sent notices;
  };
  static std::mutex mu;
  // Never destroyed; a root, for tools that look for leaks.
  static auto* const abandoned = new std::vector<Abandoned>;
  const std::lock_guard<std::mutex> lock(mu);
  abandoned->push_back(
      {context_, worker_, std::move(buried_), notices_.TakeSent()});
}

// Who has not stopped by now may read later, when the memory is the caller's.
void Network::Stop() {
  stopped_ = true;
  memory_value_.store(0, std::memory_order_seq_cst);
  Interrupt();  // Who waits learns of it by its next poll.
}

int64_t Network::EndByNs(int64_t made_ns) {
  const int64_t now_ns = NowNs();
  if (now_ns > end_by_ns_ + kEndNs || made_ns > end_by_ns_ - kEndNs) {
    end_by_ns_ = now_ns + kEndNs;
  }
  return end_by_ns_;
}

bool Network::IsFlushed(void** flush) {
  if (stopped_) return true;  // Nothing gets out any more.
  if (links_ != nullptr) links_->Progress();
  if (HasUnsentLocally()) return false;
  if (!uses_ucx_) return true;
  ucp_worker_progress(worker_);
  if (*flush == nullptr) {
    ucp_request_param_t none = {};
    void* const request = ucp_worker_flush_nbx(worker_, &none);
    if (!UCS_PTR_IS_PTR(request)) return true;
    *flush = request;
  }
  if (ucp_request_check_status(*flush) == UCS_INPROGRESS) return false;
  DropFlush(flush);
  return true;
}

// To those who take what they are sent.
bool Network::HasUnsentLocally() const {
  if (links_ == nullptr) return false;
  for (int rank = 0; rank < world_size_; ++rank) {
    const int local_rank = local_ranks_[static_cast<size_t>(rank)];
    if (local_rank == kNotLocal || !links_->Has(local_rank)) continue;
    if (IsAbsent(rank) || IsDeaf(rank)) continue;
    if (links_->HasUnsent(local_rank)) return true;
  }
  return false;
}

void Network::DropFlush(void** flush) {
  if (*flush != nullptr) ucp_request_free(*flush);  // Or once it is done.
  *flush = nullptr;
}

// Notices to communicators that are gone, which UCX would complain about.
void Network::DropUnread() {
  char bytes[kMaxUnreadBytes];
  ucp_tag_recv_info_t info;
  while (true) {
    ucp_worker_progress(worker_);
    const ucp_tag_message_h message =
        ucp_tag_probe_nb(worker_, 0, 0, /*remove=*/0, &info);
    if (message == nullptr || info.length > sizeof(bytes)) return;
    ucp_request_param_t param = {};
    void* request = ucp_tag_recv_nbx(worker_, bytes, sizeof(bytes),
                                     info.sender_tag, ~uint64_t{0}, &param);
    if (!UCS_PTR_IS_PTR(request)) continue;
    const bool done = ucp_request_check_status(request) != UCS_INPROGRESS;
    if (!done) ucp_request_cancel(worker_, request);
    while (ucp_request_check_status(request) == UCS_INPROGRESS) {
      ucp_worker_progress(worker_);
    }
    ucp_request_free(request);
    if (!done) return;
  }
}

// ---- Connecting ----

Outcome Network::Learn(int peer, std::string card) {
  if (card.size() <= sizeof(AddressCard)) {
    return {COMMSCHED_INTERNAL, "rank " + std::to_string(peer) +
                                    ": its address has " +
                                    std::to_string(card.size()) + " bytes"};
  }
  std::string& known = cards_[static_cast<size_t>(peer)];
  if (known.empty()) known = std::move(card);
  is_called_ = true;  // By it, perhaps.
  return {};
}

Outcome Network::AwaitCard(int peer, int64_t deadline_ns) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
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
  const std::lock_guard<std::mutex> lock(mu_);
  return Learn(peer, std::move(told));
}

Outcome Network::Connect(int peer) {
  const auto index = static_cast<size_t>(peer);
  if (has_begun_[index]) return {};
  if (cards_[index].empty()) {
    return {COMMSCHED_INTERNAL,
            "rank " + std::to_string(peer) + ": its address is not known"};
  }
  if (handover_ == nullptr || HostOf(peer) != HostOf(world_rank_)) {
    return ConnectByUcx(peer);
  }
  if (!handover_failure_.ok()) return handover_failure_;
  BeginHandover(peer);
  Interrupt();  // Who sleeps does not know that it is to watch for more.
  return {};
}

void Network::BeginHandover(int peer) {
  const auto index = static_cast<size_t>(peer);
  const AddressCard card = CardIn(cards_[index]);
  const bool reads =
      local_ == NetworkOptions::Local::kRead && CanRead(card.memory);
  if (reads) readable_[index] = card.memory;
  has_begun_[index] = true;
  handover_->Begin(peer, card.segment);
  ++num_handing_over_;
}

// Who sleeps learns of callers by that.
bool Network::IsHandoverDue() {
  if (handover_ == nullptr || !handover_failure_.ok()) return false;
  if (num_handing_over_ != 0 || is_called_) {
    is_called_ = false;
    return true;
  }
  if (++num_rounds_ % kRoundsPerLook != 0) return false;
  pollfd callers = {handover_->listener_fd(), POLLIN, 0};
  return poll(&callers, 1, 0) > 0;
}

// What is scarce then is scarce for all that this rank does.
void Network::HandOver() {
  handover_failure_ = TryHandOver();
  if (handover_failure_.ok()) return;
  num_handing_over_ = 0;
  for (Comm* const comm : comms_) {
    comm->Abort(handover_failure_.code, handover_failure_.reason.c_str());
  }
}

Outcome Network::TryHandOver() {
  bool is_changed = false;
  for (bool any_begun = true; any_begun;) {
    Outcome outcome = handover_->Step(/*wait_ms=*/0);
    any_begun = false;
    for (int peer = 0; peer < world_size_ && outcome.ok(); ++peer) {
      const auto index = static_cast<size_t>(peer);
      if (local_ranks_[index] == kNotLocal || is_connected_[index]) continue;
      if (!has_begun_[index] && !cards_[index].empty() &&
          handover_->HasCalled(peer)) {
        BeginHandover(peer);
        any_begun = true;
      }
      const Handover::State state = handover_->StateOf(peer);
      if (state != Handover::State::kShared &&
          state != Handover::State::kApart) {
        continue;
      }
      outcome = Decide(peer, state);
      is_changed = true;
    }
    if (!outcome.ok()) return outcome;
  }
  if (!is_changed) return {};
  for (Comm* const comm : comms_) comm->OnConnected();
  Wake();
  return {};
}

Outcome Network::Decide(int peer, Handover::State state) {
  const auto index = static_cast<size_t>(peer);
  const int local_rank = local_ranks_[index];
  --num_handing_over_;
  is_connected_[index] = true;
  if (state == Handover::State::kShared) {
    links_->Add(local_rank, handover_->TakeParts(peer));
    return {};
  }
  is_apart_[index] = true;
  Outcome outcome = ConnectByUcx(peer);
  LinkedQueue<Message> waiting = links_->TakeUnsent(local_rank);
  while (outcome.ok() && !waiting.empty()) {
    Message* const message = waiting.front();
    waiting.Pop();
    Send(peer, message->tag, message, message->sent, message->sent_bytes);
  }
  return outcome;
}

Outcome Network::ConnectByUcx(int peer) {
  const auto index = static_cast<size_t>(peer);
  ucp_ep_h& endpoint = endpoints_[index];
  uses_ucx_ = true;
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  params.address = reinterpret_cast<const ucp_address_t*>(cards_[index].data() +
                                                          sizeof(AddressCard));
  const ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint);
  has_begun_[index] = is_connected_[index] = status == UCS_OK;
  if (status == UCS_OK) return {};
  endpoint = nullptr;
  return Failed(("rank " + std::to_string(peer) + ": ucp_ep_create").c_str(),
                status);
}

void Network::Started(ucs_status_ptr_t request, Message* message) {
  if (UCS_PTR_IS_PTR(request)) {
    message->request = request;
    return;
  }
  // Done already, well or not; no callback comes.
  message->receiver->OnDone(message, UCS_PTR_STATUS(request), message->bytes);
}

Outcome Network::Read(int peer, uint64_t address, void* to,
                      uint64_t bytes) const {
  return ReadMemory(readable_[static_cast<size_t>(peer)], address, to, bytes);
}

Outcome Network::ReadPart(int peer, uint64_t address, void* to,
                          uint64_t bytes) const {
  const MemoryCard& card = readable_[static_cast<size_t>(peer)];
  return ReadMemory(static_cast<pid_t>(card.pid), address, to, bytes);
}

void Network::Send(int peer, uint64_t tag, Message* message, const void* data,
                   uint64_t bytes) {
  if (GoesByLink(peer)) {
    return links_->Send(local_ranks_[static_cast<size_t>(peer)], tag, message,
                        data, bytes);
  }
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &OnSent;
  param.user_data = message;
  Started(ucp_tag_send_nbx(endpoints_[static_cast<size_t>(peer)], data, bytes,
                           tag, &param),
          message);
}

void Network::Receive(int peer, uint64_t tag, Message* message) {
  if (GoesByLink(peer)) return links_->Receive(tag, message);
  ReceiveByUcx(tag, kWholeTag, message);
}

void Network::ReceiveAny(uint64_t tag, Message* message) {
  if (links_ != nullptr) links_->ReceiveAny(tag, message);
  ReceiveByUcx(tag, kAnySource, message);
}

// Always by the callback, which may be called in here and may post the message
// again: UCX 1.13 does not tell the size of what is received at once.
void Network::ReceiveByUcx(uint64_t tag, uint64_t mask, Message* message) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                       UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = &OnReceived;
  param.user_data = message;
  const uint32_t post = ++message->num_posts;
  const ucs_status_ptr_t request = ucp_tag_recv_nbx(
      worker_, message->data, message->bytes, tag, mask, &param);
  if (UCS_PTR_IS_ERR(request)) {
    message->receiver->OnDone(message, UCS_PTR_STATUS(request), 0);
  } else if (message->num_posts == post) {
    message->request = request;
  }
}

void Network::Cancel(Message* message) {
  if (links_ != nullptr) links_->Cancel(message);
  if (message->request != nullptr && message->is_receive) {
    ucp_request_cancel(worker_, message->request);
  }
}

bool Network::Progress() {
  if (stopped_) return false;
  if (links_ != nullptr) links_->Progress();
  if (IsHandoverDue()) HandOver();
  bool got_on = false;
  for (int i = 0; i < kMaxRounds && uses_ucx_ && !stopped_; ++i) {
    if (ucp_worker_progress(worker_) == 0) break;
    got_on = true;
  }
  notices_.Deliver();
  for (Comm* const comm : comms_) comm->PostPaced();
  return got_on;
}

bool Network::TakeId(const std::string& id, uint64_t* tags) {
  if (!ids_.insert(id).second) return false;
  // Messages that nobody has received any more belong to an earlier use of the
  // id. FNV-1a, 64 bits, folded.
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : id + "#" + std::to_string(uses_[id]++)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  *tags = (hash ^ hash >> kCommBits) & ((uint64_t{1} << kCommBits) - 1);
  if (*tags == 0) *tags = 1;  // Those of notices.
  if (tags_.insert(*tags).second) return true;
  ids_.erase(id);
  return false;
}

void Network::GiveId(const std::string& id, uint64_t tags) {
  ids_.erase(id);
  tags_.erase(tags);
  if (links_ != nullptr) links_->Retire(tags);
}

// ---- Sleeping ----

void Network::Interrupt() {
  interrupted_.store(true, std::memory_order_seq_cst);
  if (sleeps_.load(std::memory_order_seq_cst)) eventfd_write(interrupt_fd_, 1);
}

bool Network::MayGather() const {
  if (!gathers()) return false;
  uint64_t least = UINT64_MAX;
  for (const Comm* const comm : comms_) {
    least = std::min(least, comm->LeastFarBytes());
  }
  return least >= kUnhurriedBytes && least != UINT64_MAX;
}

ucs_status_t Network::Arm(bool with_ucx) {
  if (links_ != nullptr && !links_->Arm()) return UCS_ERR_BUSY;
  if (!with_ucx) return UCS_OK;
  const ucs_status_t armed = ucp_worker_arm(worker_);
  if (armed == UCS_ERR_BUSY && links_ != nullptr) links_->Disarm();
  return armed;
}

// `rest_ns` at most; INT64_MAX: for ever.
void Network::Sleep(const Watched& watched, int64_t rest_ns) {
  pollfd fds[] = {{interrupt_fd_, POLLIN, 0},
                  {watched.with_ucx ? event_fd_ : -1, POLLIN, 0},
                  {links_ != nullptr ? links_->event_fd() : -1, POLLIN, 0},
                  {watched.callers_fd, POLLIN, 0}};
  if (watched.is_handing_over) rest_ns = std::min(rest_ns, kHandingOverNs);
  if (watched.gathers) rest_ns = std::min(rest_ns, gathering_ns_);
  const timespec rest = {rest_ns / 1'000'000'000, rest_ns % 1'000'000'000};
  sleeps_.store(true, std::memory_order_seq_cst);
  if (!interrupted_.load(std::memory_order_seq_cst)) {
    ppoll(fds, 4, rest_ns == INT64_MAX ? nullptr : &rest, nullptr);
  }
  sleeps_.store(false, std::memory_order_seq_cst);
  // Of an interrupt that is seen here, or is taken by who has called. One that
  // comes now wakes the next sleep, for nothing.
  eventfd_t ignored = 0;
  if (fds[0].revents != 0) eventfd_read(interrupt_fd_, &ignored);
  if (fds[2].revents != 0) eventfd_read(links_->event_fd(), &ignored);
  if (fds[3].revents != 0) is_called_ = true;
}

void Network::Wait(int64_t deadline_ns) {
  const int64_t spin_until_ns = spin_ns_ == 0 ? 0 : NowNs() + spin_ns_;
  while (true) {
    ucs_status_t armed = UCS_ERR_BUSY;
    Watched watched;
    const bool spins = spin_ns_ != 0 && NowNs() < spin_until_ns;
    {
      const std::unique_lock<std::mutex> lock(mu_, std::try_to_lock);
      if (!lock.owns_lock()) return;  // Who has it makes progress.
      // Where nothing has come, nothing gathers.
      watched.gathers = Progress() && !spins && MayGather();
      watched.with_ucx = uses_ucx_ && !watched.gathers;
      watched.is_handing_over = num_handing_over_ != 0;
      if (handover_ != nullptr && handover_failure_.ok() && !stopped_) {
        watched.callers_fd = handover_->listener_fd();
      }
      if (stopped_) {
        armed = UCS_OK;  // Nothing comes but interrupts.
      } else if (!spins) {
        armed = Arm(watched.with_ucx);
      }
    }
    const bool is_over = TakeInterrupt() || NowNs() >= deadline_ns;
    if (armed == UCS_ERR_BUSY && !is_over) continue;
    if (!is_over) {
      Sleep(watched,
            deadline_ns == INT64_MAX ? INT64_MAX : deadline_ns - NowNs());
    }
    if (armed != UCS_ERR_BUSY && links_ != nullptr) links_->Disarm();
    if (is_over) return;
  }
}

}  // namespace commsched::ucx
