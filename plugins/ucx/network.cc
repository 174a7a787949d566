#include "network.h"

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

#include "close_on_exec.h"
#include "comm.h"
#include "resources.h"
#include "shared_memory.h"
#include "tags.h"

namespace commsched::ucx {
namespace {

// How long all that follows a failure may wait for others.
constexpr int64_t kEndNs = int64_t{1} * 1000 * 1000 * 1000;
constexpr uint64_t kMaxAddressBytes = 64 << 10;
// Rounds of progress at once. Where memory is short UCX may report work for
// ever that it cannot do.
constexpr int kMaxRounds = 4096;
// What is read to be dropped.
constexpr uint64_t kMaxUnreadBytes = 1024;
// Large messages are read from the peer's memory (peer_memory.h).
constexpr char kDefaultTls[] = "^cma";
// UCX's shared memory wakes a peer by a socket of its network namespace: one in
// another is never woken, and finds out when it looks by itself.
constexpr char kNetworkTls[] = "^sm";

// Over TCP the reply that a large message waits for (rendezvous) queues behind
// the data that goes the other way, chunk after chunk: half of a link's
// bandwidth is lost. So chunks go at once, and what is larger, which asks but
// once, is received where it belongs. Segments of 8 KiB, which is UCX's own
// choice, cost twice the time of the processor.
constexpr char kTcpSegment[] = "64k";
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

bool HasHosts(const commsched_backend_rank_desc_t& desc) {
  constexpr uint64_t kNeeded =
      offsetof(commsched_backend_rank_desc_t, networks) + sizeof(desc.networks);
  return desc.struct_size >= kNeeded && desc.hosts != nullptr;
}

// Whether there are ranks on this machine in different network namespaces.
bool MachineHasNetworks(const commsched_backend_rank_desc_t& desc) {
  if (!HasHosts(desc)) return false;
  const std::string host = desc.hosts[desc.world_rank];
  const std::string network = desc.networks[desc.world_rank];
  for (int32_t rank = 0; rank < desc.world_size; ++rank) {
    if (host == desc.hosts[rank] && network != desc.networks[rank]) return true;
  }
  return false;
}

// While a rank is opened. Names what the environment asks of UCX, and how much
// shared memory there is if it is little.
Outcome OpenFailed(const char* what, ucs_status_t status) {
  Outcome failed = Failed(what, status);
  const char* const tls = getenv("UCX_TLS");
  if (tls != nullptr) failed.reason += std::string(", with UCX_TLS=") + tls;
  const std::string text = SharedMemoryText(SharedMemoryFolder());
  if (!text.empty()) failed.reason += "; " + text;
  return failed;
}

std::string AddressKey(int rank) {
  return "ucx address of rank " + std::to_string(rank);
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
  network->one_network_ = !MachineHasNetworks(desc);
  network->FindHosts(desc, options.ranks_per_host);
  Outcome outcome = network->Open(options);
  if (outcome.ok()) outcome = network->PutAddress();
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
}

Outcome Network::Open(const NetworkOptions& options) {
  const CloseOnExec close_on_exec;
  spin_ns_ = options.spin_ns;
  chunk_bytes_ = options.chunk_bytes;
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
  read_peers_ = options.read_peers == NetworkOptions::ReadPeers::kOn;
  if (tls.empty() && getenv("UCX_TLS") == nullptr) {
    tls = one_network_ ? kDefaultTls : kNetworkTls;
    read_peers_ |= options.read_peers == NetworkOptions::ReadPeers::kDefault;
  }
  const bool asks_ucx = HasRdma() || getenv("UCX_RNDV_THRESH") != nullptr;
  eager_bytes_ = options.chunk_bytes * 3 / 2;
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
      {"TCP_TX_SEG_SIZE", "UCX_TCP_TX_SEG_SIZE", kTcpSegment},
      {"TCP_RX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE", kTcpSegment}};
  for (const auto& [name, variable, value] : settings) {
    if (value.empty() || getenv(variable) != nullptr) continue;
    if (status != UCS_OK) break;
    status = ucp_config_modify(config, name, value.c_str());
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
  const MemoryCard card = read_peers_ ? OwnMemoryCard() : MemoryCard();
  std::string value(reinterpret_cast<const char*>(&card), sizeof(card));
  value.append(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  char message[512] = "";
  const commsched_status_t code =
      oob_->put(oob_->user, AddressKey(world_rank_).c_str(), value.data(),
                value.size(), message, sizeof(message));
  return {code, message};
}

Network::~Network() {
  if (interrupt_fd_ >= 0) close(interrupt_fd_);
  if (worker_ != nullptr && !stopped_) DropUnread();
  const bool sends =
      std::any_of(buried_.begin(), buried_.end(),
                  [](const auto& comm) { return comm->Sends(); });
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
    std::vector<std::shared_ptr<Comm>> comms;  // Who the messages belong to.
  };
  static std::mutex mu;
  // Never destroyed; a root, for tools that look for leaks.
  static auto* const abandoned = new std::vector<Abandoned>;
  const std::lock_guard<std::mutex> lock(mu);
  abandoned->push_back({context_, worker_, std::move(buried_)});
}

void Network::Stop() {
  stopped_ = true;
  Interrupt();  // Who waits learns of it by its next poll.
}

int64_t Network::EndByNs() {
  const int64_t now_ns = NowNs();
  if (now_ns > end_by_ns_ + kEndNs) end_by_ns_ = now_ns + kEndNs;
  return end_by_ns_;
}

bool Network::IsFlushed(void** flush) {
  if (stopped_) return true;  // Nothing gets out any more.
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

Outcome Network::Connect(int peer, int64_t deadline_ns) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (endpoints_[static_cast<size_t>(peer)] != nullptr) return {};
  }
  std::string address(kMaxAddressBytes, '\0');
  uint64_t bytes = address.size();
  char message[512] = "";
  const commsched_status_t code =
      oob_->get(oob_->user, AddressKey(peer).c_str(), address.data(), &bytes,
                deadline_ns, message, sizeof(message));
  if (code != COMMSCHED_OK) return {code, message};
  MemoryCard card;
  if (bytes <= sizeof(card)) {
    return {COMMSCHED_INTERNAL, "rank " + std::to_string(peer) +
                                    ": its address has " +
                                    std::to_string(bytes) + " bytes"};
  }
  std::memcpy(&card, address.data(), sizeof(card));
  const bool reads =
      read_peers_ && HostOf(peer) == HostOf(world_rank_) && CanRead(card);
  const std::lock_guard<std::mutex> lock(mu_);
  ucp_ep_h& endpoint = endpoints_[static_cast<size_t>(peer)];
  if (endpoint != nullptr) return {};
  readable_[static_cast<size_t>(peer)] =
      reads ? static_cast<pid_t>(card.pid) : 0;
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  params.address =
      reinterpret_cast<const ucp_address_t*>(address.data() + sizeof(card));
  const ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint);
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

void Network::Send(int peer, uint64_t tag, Message* message, const void* data,
                   uint64_t bytes) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &OnSent;
  param.user_data = message;
  Started(ucp_tag_send_nbx(endpoints_[static_cast<size_t>(peer)], data, bytes,
                           tag, &param),
          message);
}

// Always by the callback, which may be called in here and may post the message
// again: UCX 1.13 does not tell the size of what is received at once.
void Network::Receive(uint64_t tag, uint64_t mask, Message* message) {
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
  if (message->request != nullptr) {
    ucp_request_cancel(worker_, message->request);
  }
}

void Network::Progress() {
  for (int i = 0; i < kMaxRounds && !stopped_; ++i) {
    if (ucp_worker_progress(worker_) == 0) return;
  }
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
  if (tags_.insert(*tags).second) return true;
  ids_.erase(id);
  return false;
}

void Network::GiveId(const std::string& id, uint64_t tags) {
  ids_.erase(id);
  tags_.erase(tags);
}

// ---- Sleeping ----

void Network::Interrupt() {
  interrupted_.store(true, std::memory_order_seq_cst);
  if (sleeps_.load(std::memory_order_seq_cst)) eventfd_write(interrupt_fd_, 1);
}

void Network::Wait(int64_t deadline_ns) {
  const int64_t spin_until_ns = spin_ns_ == 0 ? 0 : NowNs() + spin_ns_;
  while (true) {
    ucs_status_t armed = UCS_ERR_BUSY;
    const bool spins = spin_ns_ != 0 && NowNs() < spin_until_ns;
    {
      const std::lock_guard<std::mutex> lock(mu_);
      Progress();
      if (stopped_) {
        armed = UCS_OK;  // Nothing comes but interrupts.
      } else if (!spins) {
        armed = ucp_worker_arm(worker_);
      }
    }
    if (TakeInterrupt()) return;
    const int64_t now_ns = NowNs();
    if (now_ns >= deadline_ns) return;
    if (armed == UCS_ERR_BUSY) continue;
    sleeps_.store(true, std::memory_order_seq_cst);
    if (!interrupted_.load(std::memory_order_seq_cst)) {
      pollfd fds[] = {{event_fd_, POLLIN, 0}, {interrupt_fd_, POLLIN, 0}};
      const int64_t rest_ns = deadline_ns - now_ns;
      const timespec rest = {rest_ns / 1'000'000'000, rest_ns % 1'000'000'000};
      ppoll(fds, 2, deadline_ns == INT64_MAX ? nullptr : &rest, nullptr);
    }
    sleeps_.store(false, std::memory_order_seq_cst);
    // Of an interrupt that is seen here, or is taken below.
    eventfd_t ignored = 0;
    eventfd_read(interrupt_fd_, &ignored);  // Does not block.
  }
}

}  // namespace commsched::ucx
