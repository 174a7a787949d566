#include "ucx/network/network.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <ucs/config/global_opts.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <utility>

#include "ucx/comm.h"
#include "ucx/network/gathering.h"
#include "ucx/network/resources.h"
#include "ucx/network/ucx_failure.h"
#include "ucx/network/ucx_settings.h"
#include "ucx/process/close_on_exec.h"
#include "ucx/tags.h"

namespace commsched::ucx {
namespace {

// How long all that follows a failure may wait for others.
constexpr int64_t kEndNs = int64_t{1} * 1000 * 1000 * 1000;
// Rounds of progress at once. Where memory is short UCX may report work for
// ever that it cannot do.
constexpr int kMaxRounds = 4096;
// How long who hands over sleeps: not all that happens then wakes it.
constexpr int64_t kHandingOverNs = int64_t{1} * 1000 * 1000;
// Wake-ups of UCX may get lost (github.com/rapidsai/ucxx, issue 15), of which
// none is known here: who sleeps looks again after so long.
constexpr int64_t kUcxSleepNs = int64_t{200} * 1000 * 1000;
// What is read to be dropped.
constexpr uint64_t kMaxUnreadBytes = 1024;

// Those of the job, if it has any.
LinkProfile LinksOf(const commsched_backend_rank_desc_t& desc) {
  constexpr uint64_t kNeeded =
      offsetof(commsched_backend_rank_desc_t, links) + sizeof(desc.links);
  const bool has_links = desc.struct_size >= kNeeded && desc.links != nullptr;
  return has_links ? *desc.links : DefaultLinkProfile();
}

// While a rank is opened. Names what the environment asks of UCX.
Outcome OpenFailed(const char* what, ucs_status_t status) {
  Outcome failed = UcxFailure(what, status);
  const char* const tls = getenv("UCX_TLS");
  if (tls != nullptr) failed.reason += std::string(", with UCX_TLS=") + tls;
  return failed;
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
  std::unique_ptr<Network> network(new Network(desc, host, options));
  Outcome outcome = network->OpenLocal(options.local);
  if (outcome.ok()) outcome = network->Open(options);
  if (outcome.ok()) outcome = network->endpoints_.PutCard();
  if (outcome.ok()) network->notices_.Begin();
  if (outcome.ok()) *out = std::move(network);
  return outcome;
}

Network::Network(const commsched_backend_rank_desc_t& desc,
                 const commsched_host_t* host, const NetworkOptions& options)
    : host_(host),
      wake_(desc.wake),
      wake_user_(desc.wake_user),
      world_rank_(desc.world_rank),
      world_size_(desc.world_size),
      one_machine_(desc.local_size == desc.world_size),
      spin_ns_(options.spin_ns),
      window_bytes_(options.window_bytes),
      read_bytes_(options.read_bytes),
      choice_(options.choice),
      endpoints_(this, desc, options.ranks_per_host),
      notices_(this),
      absent_(static_cast<size_t>(desc.world_size)),
      deaf_(static_cast<size_t>(desc.world_size)) {
  choice_.links = LinksOf(desc);
  gathering_ns_ = GatheringNs(choice_.links.network);
}

Outcome Network::OpenLocal(NetworkOptions::Local local) {
  const int num_local = endpoints_.num_local();
  if (local == NetworkOptions::Local::kNet || num_local < 2 ||
      num_local > kMostBellRanks) {
    return {};
  }
  Outcome outcome = LocalLinks::Create(endpoints_.LocalRankOf(world_rank_),
                                       num_local, &links_);
  if (outcome.ok()) {
    outcome =
        endpoints_.Share(links_.get(), local == NetworkOptions::Local::kRead);
  }
  if (outcome.code != COMMSCHED_PERMISSION_DENIED) return outcome;
  links_.reset();  // All go by UCX.
  return {};
}

Outcome Network::Open(const NetworkOptions& options) {
  const CloseOnExec close_on_exec;
  // What a broken communicator leaves behind is worth a warning to UCX.
  if (getenv("UCX_LOG_LEVEL") == nullptr) {
    ucs_global_opts_set_value("LOG_LEVEL", "error");
  }
  Outcome outcome = CheckResources();
  if (outcome.ok()) outcome = OpenContext(options);
  if (outcome.ok()) outcome = OpenWorker();
  if (!outcome.ok()) return outcome;
  endpoints_.UseWorker(worker_);
  interrupt_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (interrupt_fd_ >= 0) return {};
  return {COMMSCHED_RESOURCE_EXHAUSTED, "no descriptor is left to be woken by"};
}

Outcome Network::OpenContext(const NetworkOptions& options) {
  eager_bytes_ = EagerBytes(choice_.chunk_bytes, one_machine_);
  const UcxUse use{.tls = options.tls,
                   .net_devices = options.net_devices,
                   .eager_bytes = eager_bytes_,
                   .one_machine = one_machine_,
                   .world_size = world_size_};
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES |
                      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.estimated_num_eps = static_cast<size_t>(world_size_);
  params.name = "commsched";
  ucs_status_t status = UCS_OK;
  for (const TransportNames names : kTransportNames) {
    ucp_config_t* config = nullptr;
    status = ucp_config_read(nullptr, nullptr, &config);
    if (status != UCS_OK) return UcxFailure("ucp_config_read", status);
    status = Configure(use, names, config);
    if (status == UCS_OK) status = ucp_init(&params, config, &context_);
    ucp_config_release(config);
    if (status != UCS_ERR_INVALID_PARAM) break;
  }
  return status == UCS_OK ? Outcome() : OpenFailed("ucp_init", status);
}

Outcome Network::OpenWorker() {
  ucp_worker_params_t params = {};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = ucp_worker_create(context_, &params, &worker_);
  // UCX does not say that there is no thread, or no descriptor.
  if (status == UCS_ERR_IO_ERROR) {
    return {COMMSCHED_RESOURCE_EXHAUSTED,
            "ucp_worker_create: UCX cannot start its thread, or open a "
            "descriptor (" +
                std::string(ucs_status_string(status)) + ")"};
  }
  if (status != UCS_OK) return OpenFailed("ucp_worker_create", status);
  status = ucp_worker_get_efd(worker_, &event_fd_);
  return status == UCS_OK ? Outcome()
                          : OpenFailed("ucp_worker_get_efd", status);
}

Network::~Network() {
  if (worker_ != nullptr) notices_.End();
  links_.reset();
  if (interrupt_fd_ >= 0) close(interrupt_fd_);
  if (worker_ != nullptr && !stopped_) DropUnread();
  const bool sends =
      std::any_of(buried_.begin(), buried_.end(),
                  [](const auto& comm) { return comm->IsUnderWay(); });
  if (stopped_ || sends || endpoints_.OpensBulk()) {
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
  endpoints_.TakeBackMemory();
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
  if (!endpoints_.uses_ucx()) return true;
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
    const int local_rank = endpoints_.LocalRankOf(rank);
    if (local_rank == Endpoints::kNotLocal || !links_->Has(local_rank)) {
      continue;
    }
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

// ---- Messages ----

void Network::Started(ucs_status_ptr_t request, Message* message) {
  if (UCS_PTR_IS_PTR(request)) {
    message->request = request;
    return;
  }
  // Done already, well or not; no callback comes.
  message->receiver->OnDone(message, UCS_PTR_STATUS(request), message->bytes);
}

void Network::Send(int peer, uint64_t tag, Message* message, const void* data,
                   uint64_t bytes) {
  if (GoesByLink(peer)) {
    return links_->Send(endpoints_.LocalRankOf(peer), tag, message, data,
                        bytes);
  }
  SendBy(endpoints_.EndpointOf(peer), tag, message, data, bytes);
}

void Network::SendBulk(int peer, uint64_t tag, Message* message,
                       const void* data, uint64_t bytes) {
  if (!HasBulk(peer)) return Send(peer, tag, message, data, bytes);
  SendBy(endpoints_.BulkOf(peer), tag, message, data, bytes);
}

// Who has nothing to send but this makes no progress for it: so nothing goes
// there before a first message is out.
bool Network::PrepareBulk(int peer) {
  if (!HasBulk(peer)) return true;
  if (stopped_ || endpoints_.EndpointOf(peer) == nullptr) return false;
  Endpoints::Bulk* const bulk = endpoints_.BeginBulk(peer);
  if (bulk->endpoint != nullptr && !bulk->has_begun) {
    bulk->has_begun = true;
    bulk->first.receiver = bulk;
    SendBy(bulk->endpoint, kNoticeType, &bulk->first, nullptr, 0);
  }
  return bulk->is_open;
}

void Network::SendBy(ucp_ep_h endpoint, uint64_t tag, Message* message,
                     const void* data, uint64_t bytes) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &OnSent;
  param.user_data = message;
  Started(ucp_tag_send_nbx(endpoint, data, bytes, tag, &param), message);
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
  endpoints_.Progress();
  bool got_on = false;
  for (int i = 0; i < kMaxRounds && endpoints_.uses_ucx() && !stopped_; ++i) {
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
  if (watched.with_ucx) rest_ns = std::min(rest_ns, kUcxSleepNs);
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
  if (fds[3].revents != 0) endpoints_.SetCalled();
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
      watched.with_ucx = endpoints_.uses_ucx() && !watched.gathers;
      watched.is_handing_over = endpoints_.is_handing_over();
      if (!stopped_) watched.callers_fd = endpoints_.callers_fd();
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
