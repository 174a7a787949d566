#include "comm/backend_rank.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/prompt_thread.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "comm/plugin/table_support.h"

namespace commsched {
namespace {

// How long a caller drives before it hands over to the thread, which costs more
// than the rest of what takes a little longer.
constexpr int64_t kDriveNs = int64_t{3} * 1000 * 1000;
// How long after the last wait the thread rests, where ranks are few.
constexpr int64_t kRestNs = int64_t{1} * 1000 * 1000;
// So many waits in a row that leave nothing to do let the thread rest. A launch
// that nobody has waited for when the rest ends costs kAmends more.
constexpr int kPromptWaits = 4;
constexpr int kAmends = 32;

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

BackendRank::BackendRank(const Spec& spec)
    : spec_(spec),
      crowd_(CrowdOf(std::max(spec.local_size, spec.num_sharing),
                     std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)))) {}

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

void BackendRank::Give() {
  // The sleeping thread does not know about work that was begun meanwhile.
  const bool leaves_work = (thread_sleeps() || ThreadRests()) && HasWork();
  turn_.Give();
  if (!leaves_work) return;
  EndRest();
  parker_.Unpark();
}

bool BackendRank::LookBy(int64_t deadline_ns, absl::FunctionRef<void()> look) {
  if (!turn_.TakeBy(deadline_ns)) return false;
  const absl::Cleanup give = [this] { Give(); };
  look();
  return true;
}

void BackendRank::Turn::Take() {
  rank_->Take();
  has_parker_ = !rank_->thread_sleeps();
}

void BackendRank::Turn::Sleep(int64_t deadline_ns) {
  if (rank_->turn_.IsWanted()) {
    rank_->Give();
    std::this_thread::yield();
    return Take();
  }
  // Only one may sleep on the parker. What the thread was woken for until now
  // has to be looked at first.
  const bool may_sleep = std::exchange(has_parker_, true);
  while (rank_->thread_sleeps()) {
    rank_->parker_.Unpark();
    std::this_thread::yield();
  }
  if (!rank_->PumpAll() && may_sleep) rank_->Park(deadline_ns);
}

// ---- With the turn ----

bool BackendRank::PumpAll() {
  bool any = false;
  for (Pumped* pumped : pumped_) any |= pumped->Pump();
  return any;
}

bool BackendRank::HasWork() const {
  return std::any_of(pumped_.begin(), pumped_.end(),
                     [](const Pumped* pumped) { return pumped->HasWork(); });
}

int64_t BackendRank::NextWakeNs() const {
  int64_t wake_ns = kNoDeadlineNs;
  for (const Pumped* pumped : pumped_) {
    wake_ns = std::min(wake_ns, pumped->NextWakeNs());
  }
  return wake_ns;
}

void BackendRank::Park(int64_t deadline_ns) {
  // The token of who asked for the turn may be gone already.
  if (turn_.IsWanted()) return;
  parker_.ParkUntil(std::min(deadline_ns, NextWakeNs()));
}

// ---- Callers ----

bool BackendRank::ThreadRests() const {
  const int64_t until_ns = rest_until_ns_.load(std::memory_order_relaxed);
  return until_ns != 0 && SystemClock::Get().NowNs() < until_ns;
}

void BackendRank::LetThreadRestUntil(int64_t until_ns) {
  rest_until_ns_.store(until_ns, std::memory_order_relaxed);
}

int64_t BackendRank::RestNs() const { return kRestNs * crowd_; }

void BackendRank::LetThreadRest() {
  LetThreadRestUntil(SystemClock::Get().NowNs() + RestNs());
}

void BackendRank::EndRest() {
  if (!ThreadRests()) return;
  rest_until_ns_.store(0, std::memory_order_relaxed);
  standby_.Unpark();
}

// The rest goes on as it would have: only waits prolong it. So launches that
// are begun while their caller computes are found by the thread.
void BackendRank::Begin() {
  if (!ThreadRests() || !turn_.TryTake()) {
    return BeginThere();
  }
  absl::Cleanup hand_over = [this] { HandOver(); };
  PumpAll();
  std::move(hand_over).Cancel();
  const bool leaves_work = thread_sleeps() && HasWork();
  turn_.Give();
  if (leaves_work) parker_.Unpark();
}

void BackendRank::Await(Event* event, uint64_t generation) {
  if (event->IsComplete(generation)) return;
  if (!WaitsBeside()) return event->Synchronize(generation);
  bool has_turn = MayPoll() && TakeSoon(*event, generation);
  if (has_turn) {
    absl::Cleanup hand_over = [this] { HandOver(); };
    has_turn = DriveSoon(*event, generation) && MayPoll();
    if (has_turn) std::move(hand_over).Cancel();
  }
  if (!event->IsComplete(generation)) EndRest();
  event->Synchronize(generation);
  if (has_turn || (MayPoll() && turn_.TryTake())) GiveAfterWait();
}

bool BackendRank::MayPoll() const {
  return polling_.IsWorthwhile(SystemClock::Get().NowNs());
}

int64_t BackendRank::Yield(int64_t now_ns, PollTime* polled) {
  std::this_thread::yield();
  const int64_t back_ns = SystemClock::Get().NowNs();
  polling_.OnYield(now_ns, back_ns);
  polled->OnYield(now_ns, back_ns);
  return back_ns;
}

// Polls for the turn, which a thread that is awake gives soon.
bool BackendRank::TakeSoon(const Event& event, uint64_t generation) {
  if (turn_.TryTake()) return true;
  int64_t now_ns = SystemClock::Get().NowNs();
  PollTime polled(now_ns, polling_.loss_ns());
  while (!event.IsComplete(generation) && !polled.IsOver(now_ns)) {
    now_ns = Yield(now_ns, &polled);
    if (turn_.TryTake()) return true;
  }
  return false;
}

// False: the event is not complete soon, or another thread wants the turn, or
// is to have it.
bool BackendRank::DriveSoon(const Event& event, uint64_t generation) {
  const int64_t begin_ns = SystemClock::Get().NowNs();
  PollTime polled(begin_ns, polling_.loss_ns());
  // Else the thread looks at the end of a rest, though it cannot do anything.
  if (ThreadRests()) LetThreadRestUntil(begin_ns + kDriveNs + RestNs());
  while (!event.IsComplete(generation)) {
    if (turn_.IsWanted()) return false;
    // Before the look: the thread may leave the parker with news at any time.
    const bool may_sleep = !thread_sleeps();
    const bool got_on = PumpAll();
    const int64_t now_ns = SystemClock::Get().NowNs();
    if (now_ns >= begin_ns + kDriveNs) return false;
    if (got_on) continue;
    if (!polled.IsOver(now_ns)) {
      Yield(now_ns, &polled);
    } else if (!may_sleep) {
      return false;
    } else {
      Park(begin_ns + kDriveNs);
    }
  }
  return true;
}

void BackendRank::HandOver() {
  rest_until_ns_.store(0, std::memory_order_relaxed);
  turn_.Give();
  parker_.Unpark();
  standby_.Unpark();
}

// Predicts that the next waits will be like the last ones.
void BackendRank::GiveAfterWait() {
  const bool all_is_done = !HasWork();
  num_prompt_waits_ = all_is_done
                          ? std::min(num_prompt_waits_ + 1, kPromptWaits)
                          : std::min(num_prompt_waits_, 0);
  if (!all_is_done) return HandOver();
  const bool rests = num_prompt_waits_ == kPromptWaits;
  if (rests) LetThreadRest();
  const bool is_elsewhere = rests && thread_sleeps();
  turn_.Give();
  if (is_elsewhere) parker_.Unpark();
}

void BackendRank::Drive() {
  const Turn turn(this);
  while (PumpAll()) {
  }
}

void BackendRank::DriveUntil(const Event& event, uint64_t generation) {
  if (event.IsComplete(generation)) return;
  Turn turn(this);
  PollTime polled(SystemClock::Get().NowNs(), polling_.loss_ns());
  while (!event.IsComplete(generation)) {
    const bool got_on = PumpAll();
    const int64_t now_ns = SystemClock::Get().NowNs();
    if (got_on) {
      polled = PollTime(now_ns, polling_.loss_ns());
    } else if (!polled.IsOver(now_ns) && !turn_.IsWanted()) {
      std::this_thread::yield();
      polled.OnYield(now_ns, SystemClock::Get().NowNs());
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
  parker_.Unpark();
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
  stop_.store(true, std::memory_order_release);  // acquired in IsStopped()
  parker_.Unpark();
  standby_.Unpark();
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
  while (!IsStopped()) {
    if (!TakeOver()) continue;
    bool got_on = true;
    while (got_on && !IsStopped() && !turn_.IsWanted()) got_on = PumpAll();
    if (got_on || ThreadRests()) {
      turn_.Give();
    } else {
      Sleep();
    }
  }
}

bool BackendRank::WaitsBeside() const {
  return table().wait != nullptr &&
         (table().capabilities & COMMSCHED_BACKEND_WAITS_BESIDE) != 0;
}

void BackendRank::Sleep() {
  if (table().wait == nullptr || WaitsBeside()) return SleepWithoutTurn();
  Park(kNoDeadlineNs);
  turn_.Give();
}

// Takes the turn unless callers do without the thread. False: it has slept
// instead.
bool BackendRank::TakeOver() {
  if (ThreadRests()) {
    standby_.ParkUntil(rest_until_ns_.load(std::memory_order_relaxed));
    return false;
  }
  if (!turn_.TakeLast()) return false;
  const bool was_resting = rest_until_ns_.load(std::memory_order_relaxed) != 0;
  if (was_resting && !ThreadRests()) {
    rest_until_ns_.store(0, std::memory_order_relaxed);
    if (HasWork()) num_prompt_waits_ = -kAmends;
  }
  return true;
}

// Whoever takes the turn next sees that the thread sleeps on the parker.
void BackendRank::SleepWithoutTurn() {
  const int64_t wake_ns = NextWakeNs();
  thread_sleeps_.store(true, std::memory_order_relaxed);
  turn_.Give();
  parker_.ParkUntil(wake_ns);
  thread_sleeps_.store(false, std::memory_order_release);
}

}  // namespace commsched
