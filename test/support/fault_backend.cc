#include "test/support/fault_backend.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "comm/launch_check.h"
#include "comm/plugin/registry.h"
#include "comm/plugin/table_support.h"
#include "graph/collective_shape.h"

namespace commsched::test {
namespace {

constexpr int kStorm = 100;

uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 31)) * 0x9e3779b97f4a7c15u;
  return value ^ (value >> 29);
}

uint64_t Draw(const Fault& fault, int world_rank, const std::string& axis,
              uint64_t number) {
  uint64_t hash = Mix(fault.seed + 1);
  for (const char c : axis) hash = Mix(hash + static_cast<uint8_t>(c));
  return Mix(Mix(hash + static_cast<uint64_t>(world_rank)) + number) >> 16;
}

// Faults that need nothing of a launch to happen; others are counted when they
// do.
bool HappensToAll(Fault::Kind kind) {
  switch (kind) {
    case Fault::Kind::kDelay:
    case Fault::Kind::kLateIssue:
    case Fault::Kind::kAfterNext:
    case Fault::Kind::kHang:
    case Fault::Kind::kNeverIssue:
    case Fault::Kind::kLoseWakes:
    case Fault::Kind::kWakeStorm:
      return true;
    case Fault::Kind::kFailLaunch:
    case Fault::Kind::kFailPoll:
    case Fault::Kind::kMismatchKind:
    case Fault::Kind::kMismatchCount:
    case Fault::Kind::kShort:
    case Fault::Kind::kFailCommCreate:
      return false;
  }
  return false;
}

}  // namespace

struct FaultRank {
  FaultBackend* backend = nullptr;
  int world_rank = 0;
  void* inner = nullptr;
  void (*wake)(void* user) = nullptr;
  void* wake_user = nullptr;
  // Launches in flight that do that to wakes.
  std::atomic<int> num_losing{0};
  std::atomic<int> num_storms{0};

  static void OnWake(void* user) {
    auto* const rank = static_cast<FaultRank*>(user);
    if (rank->wake == nullptr || rank->num_losing > 0) return;
    const int times = rank->num_storms > 0 ? kStorm : 1;
    for (int i = 0; i < times; ++i) rank->wake(rank->wake_user);
  }
};

// A member of a communicator. Owned by its rank's thread, but for wakes and
// aborts.
class FaultComm {
 public:
  FaultComm(FaultRank* of, const commsched_comm_desc_t& desc)
      : of_(*of),
        backend_(of->backend),
        inner_table_(*backend_->inner_),
        axis_(desc.axis),
        size_(desc.size),
        rank_(desc.rank),
        world_rank_(of->world_rank),
        requests_(desc.max_in_flight) {
    ++backend_->num_members_;
  }
  ~FaultComm() { --backend_->num_members_; }

  void* inner() const { return inner_; }
  commsched_status_t Destroy(int64_t deadline_ns, char* message,
                             uint64_t message_size) {
    return inner_table_.comm_destroy(inner_, deadline_ns, message,
                                     message_size);
  }
  absl::Status Create(const commsched_comm_desc_t& desc);
  absl::Status Launch(const commsched_launch_t* launch, uint32_t request);
  absl::Status Poll(uint32_t request, commsched_launch_result_t* out_result);
  absl::Status Status() const;
  uint32_t Missing(uint32_t request, int32_t* out_ranks,
                   uint32_t capacity) const {
    if (request < requests_.size() && !requests_[request].issued) return 0;
    return inner_table_.comm_missing(inner_, request, out_ranks, capacity);
  }

 private:
  // The end of an output, as it was.
  struct Tail {
    std::byte* address;
    std::vector<std::byte> bytes;
  };
  struct Request {
    bool used = false;
    bool issued = false;
    bool done_below = false;
    uint64_t number = 0;
    uint64_t rank_number = 0;  // among all launches of the rank
    const Fault* fault = nullptr;
    const commsched_launch_t* launch = nullptr;
    int64_t posted_ns = 0;
    int64_t done_ns = 0;
    int storm_left = 0;
    commsched_launch_result_t result{};
    // What is handed on instead of `launch`.
    commsched_launch_t altered{};
    std::vector<commsched_member_t> members;
    std::vector<uint64_t> counts;
    std::vector<Tail> tails;
  };

  static bool Is(const Request& request, Fault::Kind kind) {
    return request.fault != nullptr && request.fault->kind == kind;
  }
  const Fault* Match(uint64_t number, int64_t collective) const;
  void Count(const Fault* fault) {
    ++backend_->num_injected_[fault - backend_->faults_.data()];
  }
  absl::Status FailHere(const Fault& fault) {
    Count(&fault);
    return fault.failure;
  }
  absl::Status IssueDue();
  absl::Status Issue(uint32_t request);
  bool AlterKind(Request* request);
  bool AlterCount(Request* request);
  void SaveTails(Request* request);
  // When a launch that is done below may be reported; INT64_MAX: never.
  int64_t ReportAtNs(const Request& request) const;
  void Finish(Request* request, commsched_launch_result_t* out_result);

  FaultRank& of_;
  FaultBackend* const backend_;
  const commsched_backend_t& inner_table_;
  const std::string axis_;
  const int size_;
  const int rank_;
  const int world_rank_;
  void* inner_ = nullptr;

  std::vector<Request> requests_;
  std::deque<uint32_t> held_;  // requests that are not issued yet
  uint64_t num_posted_ = 0;
  uint64_t num_done_ = 0;
};

const Fault* FaultComm::Match(uint64_t number, int64_t collective) const {
  if (backend_->healed_) return nullptr;
  const bool is_launch = collective >= 0;
  for (const Fault& fault : backend_->faults_) {
    const bool for_launch = fault.kind != Fault::Kind::kFailCommCreate;
    if (for_launch != is_launch) continue;
    if (fault.world_rank >= 0 && fault.world_rank != world_rank_) continue;
    if (!fault.axis.empty() && fault.axis != axis_) continue;
    if (is_launch && fault.launch >= 0 &&
        static_cast<uint64_t>(fault.launch) != number) {
      continue;
    }
    if (is_launch && fault.collective >= 0 && fault.collective != collective) {
      continue;
    }
    if (Draw(fault, world_rank_, axis_, number) % 1'000'000 <
        fault.per_million) {
      return &fault;
    }
  }
  return nullptr;
}

absl::Status FaultComm::Create(const commsched_comm_desc_t& desc) {
  const Fault* const fault = Match(0, -1);
  if (fault != nullptr) {
    Count(fault);
    return fault->failure;
  }
  char message[512] = "";
  const commsched_status_t code = inner_table_.comm_create(
      of_.inner, &desc, &inner_, message, sizeof(message));
  return code == COMMSCHED_OK ? absl::OkStatus()
                              : FailureFromTable(code, message);
}

absl::Status FaultComm::Status() const {
  if (inner_table_.comm_status == nullptr) return absl::OkStatus();
  char message[512] = "";
  const commsched_status_t code =
      inner_table_.comm_status(inner_, message, sizeof(message));
  return code == COMMSCHED_OK ? absl::OkStatus()
                              : FailureFromTable(code, message);
}

absl::Status FaultComm::Launch(const commsched_launch_t* launch,
                               uint32_t request) {
  if (launch == nullptr || request >= requests_.size() ||
      requests_[request].used) {
    // The inner backend knows what to say.
    char message[512] = "";
    const commsched_status_t code =
        inner_table_.launch(inner_, launch, request, commsched_stream_caller(),
                            message, sizeof(message));
    return FailureFromTable(code, message);
  }
  Request& posted = requests_[request];
  posted = Request();
  posted.used = true;
  posted.number = num_posted_++;
  posted.rank_number = backend_->num_launched_[world_rank_]++;
  posted.launch = launch;
  posted.posted_ns = backend_->clock_->NowNs();
  posted.fault = Match(posted.number, launch->kind);
  if (Is(posted, Fault::Kind::kFailLaunch)) return FailHere(*posted.fault);
  if (posted.fault != nullptr && HappensToAll(posted.fault->kind)) {
    Count(posted.fault);
  }
  if (Is(posted, Fault::Kind::kLoseWakes)) ++of_.num_losing;
  if (Is(posted, Fault::Kind::kWakeStorm)) {
    ++of_.num_storms;
    posted.storm_left = kStorm;
  }
  held_.push_back(request);
  return IssueDue();
}

absl::Status FaultComm::IssueDue() {
  while (!held_.empty()) {
    const Request& oldest = requests_[held_.front()];
    if (Is(oldest, Fault::Kind::kNeverIssue)) break;
    if (Is(oldest, Fault::Kind::kLateIssue) &&
        backend_->clock_->NowNs() < oldest.posted_ns + oldest.fault->delay_ns) {
      break;
    }
    const uint32_t request = held_.front();
    held_.pop_front();
    if (absl::Status issued = Issue(request); !issued.ok()) return issued;
  }
  return absl::OkStatus();
}

absl::Status FaultComm::Issue(uint32_t request) {
  Request& issued = requests_[request];
  issued.issued = true;
  const commsched_launch_t* launch = issued.launch;
  if (issued.fault != nullptr) {
    switch (issued.fault->kind) {
      case Fault::Kind::kMismatchKind:
        if (AlterKind(&issued)) Count(issued.fault);
        launch = &issued.altered;
        break;
      case Fault::Kind::kMismatchCount:
        issued.altered = *launch;
        if (AlterCount(&issued)) Count(issued.fault);
        launch = &issued.altered;
        break;
      case Fault::Kind::kShort:
        SaveTails(&issued);
        if (!issued.tails.empty()) Count(issued.fault);
        break;
      default:
        break;
    }
  }
  char message[512] = "";
  const commsched_status_t code =
      inner_table_.launch(inner_, launch, request, commsched_stream_caller(),
                          message, sizeof(message));
  if (code != COMMSCHED_OK) return FailureFromTable(code, message);
  return absl::OkStatus();
}

bool FaultComm::AlterKind(Request* request) {
  request->altered = *request->launch;
  if (request->launch->kind != COMMSCHED_BARRIER) {
    request->altered.kind = COMMSCHED_BARRIER;
    return true;
  }
  request->members.assign(1, commsched_member_t{});
  request->altered = {};
  request->altered.kind = COMMSCHED_ALL_REDUCE;
  request->altered.num_members = 1;
  request->altered.members = request->members.data();
  return true;
}

bool FaultComm::AlterCount(Request* request) {
  const commsched_launch_t& launch = *request->launch;
  request->members.assign(launch.members, launch.members + launch.num_members);
  request->altered.members = request->members.data();
  const int64_t num_parts = NumParts(KindOf(launch.kind), size_);
  for (commsched_member_t& member : request->members) {
    if (member.counts == nullptr) {
      if (member.count == 0) continue;
      --member.count;
      return true;
    }
    request->counts.assign(member.counts, member.counts + num_parts);
    for (uint64_t& count : request->counts) {
      if (count == 0) continue;
      --count;
      member.counts = request->counts.data();
      return true;
    }
  }
  return false;
}

void FaultComm::SaveTails(Request* request) {
  const commsched_launch_t& launch = *request->launch;
  if (launch.kind == COMMSCHED_BARRIER) return;
  const uint64_t element = DTypeSize(static_cast<DType>(launch.dtype));
  for (uint32_t m = 0; m < launch.num_members; ++m) {
    const commsched_member_t& member = launch.members[m];
    const absl::StatusOr<Extents> extents =
        ExtentsOf(launch, member, rank_, size_);
    if (!extents.ok() || extents->output_bytes < element) continue;
    std::byte* const tail = static_cast<std::byte*>(member.output) +
                            extents->output_bytes - element;
    request->tails.push_back({tail, {tail, tail + element}});
  }
}

int64_t FaultComm::ReportAtNs(const Request& request) const {
  if (Is(request, Fault::Kind::kHang)) return INT64_MAX;
  if (Is(request, Fault::Kind::kDelay)) {
    return request.done_ns + request.fault->delay_ns;
  }
  if (Is(request, Fault::Kind::kAfterNext)) {
    const bool next_is_done =
        backend_->last_done_[world_rank_] > request.rank_number;
    return next_is_done ? 0 : request.done_ns + request.fault->delay_ns;
  }
  return 0;
}

absl::Status FaultComm::Poll(uint32_t request,
                             commsched_launch_result_t* out_result) {
  if (absl::Status issued = IssueDue(); !issued.ok()) return issued;
  if (out_result == nullptr || request >= requests_.size() ||
      !requests_[request].used) {
    return absl::InvalidArgumentError(
        absl::StrCat("poll of request ", request, ", which is not in flight"));
  }
  Request& polled = requests_[request];
  *out_result = commsched_launch_result_t();
  if (!polled.issued) {
    const Request& oldest = requests_[held_.front()];
    if (Is(oldest, Fault::Kind::kLateIssue)) {
      out_result->wake_at_ns = oldest.posted_ns + oldest.fault->delay_ns;
    }
    return Status();
  }
  if (polled.storm_left > 0 && of_.wake != nullptr) {
    --polled.storm_left;
    of_.wake(of_.wake_user);
  }
  if (!polled.done_below) {
    char message[512] = "";
    const commsched_status_t code = inner_table_.poll(
        inner_, request, &polled.result, message, sizeof(message));
    if (code != COMMSCHED_OK) return FailureFromTable(code, message);
    *out_result = polled.result;
    out_result->done = 0;
    if (polled.result.done == 0) return absl::OkStatus();
    polled.done_below = true;
    polled.done_ns = backend_->clock_->NowNs();
  }
  if (Is(polled, Fault::Kind::kFailPoll)) return FailHere(*polled.fault);
  const int64_t report_at_ns = ReportAtNs(polled);
  if (report_at_ns > backend_->clock_->NowNs()) {
    out_result->wake_at_ns = report_at_ns == INT64_MAX ? 0 : report_at_ns;
    return Status();
  }
  if (polled.number == num_done_) Finish(&polled, out_result);
  return absl::OkStatus();
}

void FaultComm::Finish(Request* request,
                       commsched_launch_result_t* out_result) {
  for (const Tail& tail : request->tails) {
    std::memcpy(tail.address, tail.bytes.data(), tail.bytes.size());
  }
  if (Is(*request, Fault::Kind::kLoseWakes)) --of_.num_losing;
  if (Is(*request, Fault::Kind::kWakeStorm)) --of_.num_storms;
  *out_result = request->result;
  uint64_t& last_done = backend_->last_done_[world_rank_];
  last_done = std::max(last_done, request->rank_number);
  request->used = false;
  ++num_done_;
}

// The functions of the table.
struct FaultTable {
  static FaultComm* Of(void* comm) { return static_cast<FaultComm*>(comm); }

  static commsched_status_t InstanceCreate(
      const commsched_instance_desc_t* desc, void** out_instance, char* message,
      uint64_t message_size) {
    uint64_t address = 0;
    if (!absl::SimpleAtoi(desc->config, &address) || address == 0) {
      return ToTable(absl::InvalidArgumentError("not made by Spec()"), message,
                     message_size);
    }
    auto* const backend = reinterpret_cast<FaultBackend*>(address);
    commsched_instance_desc_t inner = *desc;
    inner.config = backend->inner_config_.c_str();
    *out_instance = backend;
    return backend->inner_->instance_create(&inner, &backend->inner_instance_,
                                            message, message_size);
  }
  static void InstanceDestroy(void* instance) {
    auto* const backend = static_cast<FaultBackend*>(instance);
    backend->inner_->instance_destroy(backend->inner_instance_);
  }

  static commsched_status_t RankOpen(void* instance,
                                     const commsched_backend_rank_desc_t* desc,
                                     void** out_rank, char* message,
                                     uint64_t message_size) {
    auto rank = std::make_unique<FaultRank>();
    rank->backend = static_cast<FaultBackend*>(instance);
    rank->world_rank = desc->world_rank;
    rank->wake = desc->wake;
    rank->wake_user = desc->wake_user;
    commsched_backend_rank_desc_t inner = *desc;
    inner.wake = &FaultRank::OnWake;
    inner.wake_user = rank.get();
    const commsched_status_t code =
        rank->backend->inner_->rank_open(rank->backend->inner_instance_, &inner,
                                         &rank->inner, message, message_size);
    if (code == COMMSCHED_OK) *out_rank = rank.release();
    return code;
  }
  static void RankClose(void* opaque) {
    const std::unique_ptr<FaultRank> rank(static_cast<FaultRank*>(opaque));
    rank->backend->inner_->rank_close(rank->inner);
  }

  static commsched_status_t CommCreate(void* opaque,
                                       const commsched_comm_desc_t* desc,
                                       void** out_comm, char* message,
                                       uint64_t message_size) {
    auto comm =
        std::make_unique<FaultComm>(static_cast<FaultRank*>(opaque), *desc);
    const absl::Status created = comm->Create(*desc);
    if (!created.ok()) return ToTable(created, message, message_size);
    *out_comm = comm.release();
    return COMMSCHED_OK;
  }
  static commsched_status_t Launch(void* comm, const commsched_launch_t* launch,
                                   uint32_t request,
                                   commsched_stream_t /*stream*/, char* message,
                                   uint64_t message_size) {
    return ToTable(Of(comm)->Launch(launch, request), message, message_size);
  }
  static commsched_status_t Poll(void* comm, uint32_t request,
                                 commsched_launch_result_t* out_result,
                                 char* message, uint64_t message_size) {
    return ToTable(Of(comm)->Poll(request, out_result), message, message_size);
  }
  static void Abort(void* opaque, void* const* comms, uint32_t num_comms,
                    commsched_status_t status, const char* message) {
    auto* const rank = static_cast<FaultRank*>(opaque);
    for (uint32_t i = 0; i < num_comms; ++i) {
      void* const inner = Of(comms[i])->inner();
      rank->backend->inner_->abort(rank->inner, &inner, 1, status, message);
    }
  }
  static commsched_status_t CommDestroy(void* comm, int64_t deadline_ns,
                                        char* message, uint64_t message_size) {
    const std::unique_ptr<FaultComm> own(Of(comm));
    return own->Destroy(deadline_ns, message, message_size);
  }
  static commsched_status_t CommStatus(void* comm, char* message,
                                       uint64_t message_size) {
    return ToTable(Of(comm)->Status(), message, message_size);
  }
  static uint32_t CommMissing(void* comm, uint32_t request, int32_t* out_ranks,
                              uint32_t capacity) {
    return Of(comm)->Missing(request, out_ranks, capacity);
  }
};

FaultBackend::FaultBackend(std::vector<Fault> faults, const Clock* clock)
    : faults_(std::move(faults)),
      clock_(clock),
      num_injected_(faults_.size()) {}

FaultBackend::~FaultBackend() = default;

WorldSpec FaultBackend::Spec(const WorldSpec& inner) {
  inner_ = inner.table != nullptr
               ? inner.table
               : PluginRegistry::Process().Backend(inner.backend).value();
  inner_config_ = inner.backend_config;
  num_launched_.assign(inner.size, 0);
  last_done_.assign(inner.size, 0);
  table_ = {.struct_size = sizeof(commsched_backend_t),
            .abi = COMMSCHED_BACKEND_ABI,
            .capabilities = inner_->capabilities,
            .name = "fault",
            .version = "0",
            .kinds = inner_->kinds,
            .dtypes = inner_->dtypes,
            .reductions = inner_->reductions,
            .memory_kinds = inner_->memory_kinds,
            .instance_create = &FaultTable::InstanceCreate,
            .instance_destroy = &FaultTable::InstanceDestroy,
            .rank_open = &FaultTable::RankOpen,
            .rank_close = &FaultTable::RankClose,
            .comm_create = &FaultTable::CommCreate,
            .launch = &FaultTable::Launch,
            .poll = inner_->poll == nullptr ? nullptr : &FaultTable::Poll,
            .abort = &FaultTable::Abort,
            .comm_destroy = &FaultTable::CommDestroy,
            .comm_ready = nullptr,
            .comm_status = &FaultTable::CommStatus,
            .comm_expect = nullptr,
            .comm_missing = inner_->comm_missing == nullptr
                                ? nullptr
                                : &FaultTable::CommMissing,
            .mem_register = nullptr,
            .mem_unregister = nullptr,
            .wait = nullptr,
            .interrupt = nullptr,
            .mem_alloc = nullptr,
            .mem_free = nullptr,
            .mem_stats = nullptr,
            .comm_silent = nullptr,
            .comm_starts = nullptr,
            .comm_estimate = nullptr,
            .launch_bytes = sizeof(commsched_launch_t)};
  WorldSpec spec;
  spec.size = inner.size;
  spec.backend = table_.name;
  spec.backend_config = absl::StrCat(reinterpret_cast<uintptr_t>(this));
  spec.table = &table_;
  return spec;
}

}  // namespace commsched::test
