#include "comm/backend_rank.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/prompt_thread.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "comm/table_support.h"

namespace commsched {
namespace {

// How long a caller that waits polls before it sleeps: somewhat more than a
// wake-up costs.
constexpr int64_t kYieldNs = int64_t{50} * 1000;

std::string OobKey(const char* key) { return absl::StrCat("backend ", key); }

commsched_status_t Put(void* user, const char* key, const void* value,
                       uint64_t bytes, char* message, uint64_t message_size) {
  auto* store = static_cast<ValueStore*>(user);
  return ToTable(
      store->Put(OobKey(key),
                 std::string(static_cast<const char*>(value), bytes)),
      message, message_size);
}

commsched_status_t Get(void* user, const char* key, void* value,
                       uint64_t* bytes, int64_t deadline_ns, char* message,
                       uint64_t message_size) {
  auto* store = static_cast<ValueStore*>(user);
  const int64_t timeout_ns =
      std::max<int64_t>(0, deadline_ns - SystemClock::Get().NowNs());
  auto got = store->Get(OobKey(key), timeout_ns);
  absl::Status status = got.status();
  if (got.ok() && got->size() > *bytes) {
    status = absl::OutOfRangeError(
        absl::StrCat("value of key '", key, "' has ", got->size(),
                     " bytes, room for ", *bytes, " was given"));
  }
  if (got.ok()) *bytes = got->size();
  if (status.ok() && !got->empty()) {
    std::memcpy(value, got->data(), got->size());
  }
  return ToTable(status, message, message_size);
}

}  // namespace

BackendRank::BackendRank(const Spec& spec) : spec_(spec) {}

absl::StatusOr<std::unique_ptr<BackendRank>> BackendRank::Open(
    const Spec& spec) {
  std::unique_ptr<BackendRank> rank(new BackendRank(spec));
  RETURN_IF_ERROR(rank->OpenTable());
  return rank;
}

absl::Status BackendRank::OpenTable() {
  oob_ = {.struct_size = sizeof(oob_),
          .user = spec_.store,
          .put = &Put,
          .get = &Get};
  commsched_backend_rank_desc_t desc = {};
  desc.struct_size = sizeof(desc);
  desc.epoch = spec_.epoch;
  desc.world_rank = spec_.world_rank;
  desc.world_size = spec_.world_size;
  desc.local_rank = spec_.local_rank;
  desc.local_size = spec_.local_size;
  desc.device_kind = spec_.device->kind();
  desc.device = spec_.device->ordinal();
  desc.oob = &oob_;
  desc.wake = [](void* user) { static_cast<Parker*>(user)->Unpark(); };
  desc.wake_user = &parker_;
  for (const std::string& host : spec_.roster.hosts) {
    hosts_.push_back(host.c_str());
  }
  for (const std::string& network : spec_.roster.networks) {
    networks_.push_back(network.c_str());
  }
  if (!hosts_.empty()) {
    desc.hosts = hosts_.data();
    desc.networks = networks_.data();
  }
  if (spec_.links.has_value()) desc.links = &*spec_.links;
  if (table().wait != nullptr) {
    const auto sleep = [](void* user, int64_t deadline_ns) {
      auto* self = static_cast<BackendRank*>(user);
      self->table().wait(self->handle_, deadline_ns);
    };
    const auto wake = [](void* user) {
      auto* self = static_cast<BackendRank*>(user);
      self->table().interrupt(self->handle_);
    };
    parker_.SetSleeper({.user = this, .sleep = sleep, .wake = wake});
  }
  PluginMessage message;
  void* handle = nullptr;
  const commsched_status_t code = table().rank_open(
      spec_.instance, &desc, &handle, message.Begin(), PluginMessage::size());
  if (code != COMMSCHED_OK) {
    const absl::Status failure =
        BackendFailure(table(), "rank_open", code, message);
    return absl::Status(failure.code(), absl::StrCat("rank ", spec_.world_rank,
                                                     ": ", failure.message()));
  }
  handle_ = handle;
  return absl::OkStatus();
}

BackendRank::~BackendRank() {
  if (handle_ != nullptr) table().rank_close(handle_);
}

// ---- The turn ----

bool BackendRank::TakeBy(int64_t deadline_ns) {
  num_waiting_.fetch_add(1, std::memory_order_seq_cst);
  parker_.Unpark();  // Whoever sleeps with the turn gives it.
  MutexLock lock(&mu_);
  bool in_time = true;
  while (taken_ && in_time) in_time = given_.WaitUntil(&mu_, deadline_ns);
  const bool had = !taken_;
  taken_ = true;
  num_waiting_.fetch_sub(1, std::memory_order_seq_cst);
  if (!had) given_.SignalAll();  // Who takes it only if nobody waits.
  return had;
}

// Once nobody else wants it.
void BackendRank::TakeIdle() {
  MutexLock lock(&mu_);
  while (taken_ || num_waiting_.load(std::memory_order_seq_cst) != 0) {
    given_.Wait(&mu_);
  }
  taken_ = true;
}

void BackendRank::Give() {
  MutexLock lock(&mu_);
  taken_ = false;
  given_.SignalAll();
}

bool BackendRank::LookBy(int64_t deadline_ns, absl::FunctionRef<void()> look) {
  if (!TakeBy(deadline_ns)) return false;
  look();
  Give();
  return true;
}

void BackendRank::Turn::Sleep(int64_t deadline_ns) {
  if (rank_->num_waiting_.load(std::memory_order_seq_cst) != 0) {
    rank_->Give();
    std::this_thread::yield();
    rank_->Take();
    return;
  }
  if (!rank_->PumpAll()) rank_->Park(deadline_ns);
}

// ---- With the turn ----

bool BackendRank::PumpAll() {
  bool any = false;
  for (Pumped* pumped : pumped_) any |= pumped->Pump();
  return any;
}

void BackendRank::Park(int64_t deadline_ns) {
  for (Pumped* pumped : pumped_) {
    deadline_ns = std::min(deadline_ns, pumped->NextWakeNs());
  }
  // The token of who asked for the turn may be gone already.
  if (num_waiting_.load(std::memory_order_seq_cst) != 0) return;
  parker_.ParkUntil(deadline_ns);
}

// ---- Callers ----

void BackendRank::Drive() {
  const Turn turn(this);
  while (PumpAll()) {
  }
}

void BackendRank::DriveUntil(const Event& event, uint64_t generation) {
  if (event.IsComplete(generation)) return;
  Turn turn(this);
  int64_t sleep_at_ns = 0;  // Not yet known.
  while (!event.IsComplete(generation)) {
    if (PumpAll()) {
      sleep_at_ns = 0;
      continue;
    }
    const int64_t now_ns = SystemClock::Get().NowNs();
    if (sleep_at_ns == 0) sleep_at_ns = now_ns + kYieldNs;
    if (now_ns < sleep_at_ns) {
      std::this_thread::yield();
    } else {
      turn.Sleep(kNoDeadlineNs);
    }
  }
}

// ---- The thread ----

absl::Status BackendRank::Attach(Pumped* pumped, By by) {
  MutexLock lock(&thread_mu_);
  // What can fail comes first.
  on_thread_.reserve(on_thread_.size() + 1);
  {
    const Turn turn(this);
    pumped_.reserve(pumped_.size() + 1);
  }
  if (by == By::kThread && !thread_.joinable()) RETURN_IF_ERROR(StartLocked());
  {
    const Turn turn(this);
    pumped_.push_back(pumped);
  }
  if (by == By::kThread) on_thread_.push_back(pumped);
  return absl::OkStatus();
}

absl::Status BackendRank::StartLocked() {
  const std::string name = absl::StrCat("commsched/", spec_.world_rank);
  ASSIGN_OR_RETURN(thread_, StartThread(absl::StrCat("the progress thread of "
                                                     "rank ",
                                                     spec_.world_rank),
                                        [this] { ThreadMain(); }));
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
  return absl::OkStatus();
}

void BackendRank::Detach(Pumped* pumped) {
  MutexLock lock(&thread_mu_);
  {
    const Turn turn(this);
    std::erase(pumped_, pumped);
  }
  if (std::erase(on_thread_, pumped) == 0 || !on_thread_.empty()) return;
  stop_.store(true, std::memory_order_release);  // acquired in ThreadMain()
  parker_.Unpark();
  thread_.join();
  stop_.store(false, std::memory_order_relaxed);
}

BackendRank::Driven::Driven(BackendRank* rank)
    : rank_(rank != nullptr && rank->table().wait != nullptr ? rank : nullptr) {
  if (rank_ != nullptr && !rank_->Attach(&nothing_).ok()) rank_ = nullptr;
}

BackendRank::Driven::~Driven() {
  if (rank_ != nullptr) rank_->Detach(&nothing_);
}

void BackendRank::ThreadMain() {
  // Ranks compute on the cores that it is woken on.
  MakeThreadPrompt();
  while (!stop_.load(std::memory_order_acquire)) {
    TakeIdle();
    while (!stop_.load(std::memory_order_acquire) &&
           num_waiting_.load(std::memory_order_seq_cst) == 0) {
      if (!PumpAll()) Park(kNoDeadlineNs);
    }
    Give();
  }
}

}  // namespace commsched
