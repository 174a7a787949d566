#include "session/communicators.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "comm/meeting/meeting.h"
#include "comm/plugin/table_support.h"
#include "session/binding.h"
#include "session/join_wait.h"

namespace commsched {
namespace {

// How often a communicator that is not ready yet is looked at.
constexpr int64_t kLookNs = int64_t{1} * 1000 * 1000;

constexpr size_t kNone = ~size_t{0};

uint32_t LargestLaunch(const SessionSpec& spec) {
  if (spec.plan == nullptr) return spec.max_members;
  size_t members = 1;
  for (const Launch& launch : spec.plan->launches) {
    members = std::max(members, launch.members.size());
  }
  return static_cast<uint32_t>(members);
}

// Whether any member sends on the group, and all have collectives there: the
// same on all members, though not all of them may send or receive.
bool HasCollectivesAndTransfers(const Plan& plan, size_t group) {
  if (plan.group_sends[group]->lines.empty()) return false;
  return std::any_of(plan.launches.begin(), plan.launches.end(),
                     [group](const Launch& launch) {
                       return launch.group.value() == group &&
                              !IsPointToPoint(launch.kind);
                     });
}

// "rank 3: ", unless that is how it begins.
absl::Status OfRank(int rank, const absl::Status& failure) {
  const std::string name = absl::StrCat("rank ", rank, ": ");
  if (absl::StartsWith(failure.message(), name)) return failure;
  return absl::Status(failure.code(), absl::StrCat(name, failure.message()));
}

absl::Status OfAxis(const SessionSpec& spec, const GroupSpec& group,
                    const absl::Status& failure) {
  return absl::Status(failure.code(),
                      absl::StrCat(spec.who, ": communicator of axis ",
                                   group.axis, ": ", failure.message()));
}

}  // namespace

Communicators::Communicators(std::shared_ptr<World> world)
    : world_(std::move(world)), backend_(world_->backend()) {}

Communicators::~Communicators() { Close(/*timeout_ns=*/0).IgnoreError(); }

// The others may wait for this rank in comm_ready, which only a failure of the
// session ends.
absl::Status Communicators::Create(const SessionSpec& spec, uint32_t requests,
                                   bool reads_starts) {
  scope_ = spec.instance;
  asks_starts_ = reads_starts && backend_->comm_starts != nullptr;
  return Told(spec, CreateAll(spec, requests));
}

absl::Status Communicators::AwaitConnected(const SessionSpec& spec) {
  return Told(spec, AwaitReady(spec));
}

absl::Status Communicators::Told(const SessionSpec& spec,
                                 const absl::Status& status) {
  if (status.ok()) return status;
  if (aborter_ != nullptr) {
    const absl::Status first = aborter_->failure();
    if (!first.ok()) return first;  // This one is its consequence.
  }
  world_->Tell(spec.world_rank, scope_, OfRank(spec.world_rank, status));
  return status;
}

void Communicators::NumberAll(const SessionSpec& spec) {
  for (size_t group = 0; group < spec.groups.size(); ++group) {
    group_of_.push_back(group);
    number_of_transfers_.push_back(static_cast<uint32_t>(group));
  }
  if (spec.plan == nullptr || !EnqueuesOn(*backend_)) return;
  for (size_t group = 0; group < spec.groups.size(); ++group) {
    if (!HasCollectivesAndTransfers(*spec.plan, group)) continue;
    number_of_transfers_[group] = static_cast<uint32_t>(group_of_.size());
    group_of_.push_back(group);
  }
}

// In one order on all ranks, whatever number a group has in their graphs. It is
// known by the name that the planner knows it by.
Communicators::Ids Communicators::IdsOf(const SessionSpec& spec) const {
  Ids ids;
  for (size_t number = 0; number < group_of_.size(); ++number) {
    const size_t at = group_of_[number];
    const GroupSpec& group = spec.groups[at];
    const std::string name = spec.plan == nullptr
                                 ? absl::StrCat(at)
                                 : spec.plan->graph->groups()[at].name;
    ids.emplace_back(
        absl::StrCat(spec.who, " ", spec.instance, " group ", name, " ",
                     group.axis, " ", absl::StrJoin(group.ranks, ","),
                     number == at ? "" : " sends"),
        number);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

absl::Status Communicators::CreateAll(const SessionSpec& spec,
                                      uint32_t requests) {
  ASSIGN_OR_RETURN(rank_, world_->Rank(spec.world_rank));
  NumberAll(spec);
  const Ids ids = IdsOf(spec);
  if (EnqueuesOn(*backend_)) {
    RETURN_IF_ERROR(Borrow(spec, ids));
  } else {
    aborter_ = std::make_shared<CommAborter>(rank_);
  }
  comms_.assign(ids.size(), nullptr);
  for (const auto& [id, number] : ids) {
    RETURN_IF_ERROR(CreateOne(spec, number, id, requests));
    in_order_.push_back(number);
  }
  world_->Watch(aborter_, spec.world_rank, scope_, spec.members);
  RETURN_IF_ERROR(AwaitReady(spec));
  world_->Recovered(scope_);
  return absl::OkStatus();
}

absl::Status Communicators::CreateOne(const SessionSpec& spec, size_t number,
                                      const std::string& id,
                                      uint32_t requests) {
  KeptComm* const kept = generation_ == nullptr ? nullptr : borrowed_[number];
  if (kept != nullptr && kept->comm != nullptr) {
    comms_[number] = kept->comm;
    return absl::OkStatus();
  }
  const GroupSpec& group = spec.groups[group_of_[number]];
  const std::string kept_id =
      kept == nullptr || !kept->is_kept
          ? id
          : absl::StrCat("kept ", generation_->number(), " ", kept->wish.group,
                         " #", kept->index);
  commsched_comm_desc_t desc = {};
  desc.struct_size = sizeof(desc);
  desc.id = kept_id.c_str();
  desc.axis = group.axis.c_str();
  desc.ranks = group.ranks.data();
  desc.size = static_cast<int32_t>(group.ranks.size());
  desc.rank = group.rank;
  desc.max_in_flight = requests;
  desc.max_members = LargestLaunch(spec);
  desc.asks_starts = asks_starts_ ? 1 : 0;
  desc.num_lanes = NumLanesOf(spec, number);
  PluginMessage message;
  commsched_status_t code = COMMSCHED_OK;
  {
    const BackendRank::Turn turn(rank_);
    code = backend_->comm_create(rank_->handle(), &desc, &comms_[number],
                                 message.Begin(), PluginMessage::size());
  }
  if (code != COMMSCHED_OK) {
    comms_[number] = nullptr;
    return OfAxis(spec, group,
                  BackendFailure(*backend_, "comm_create", code, message));
  }
  if (kept != nullptr) {
    generation_->Add(kept, comms_[number]);
  } else {
    aborter_->Add(comms_[number]);
  }
  return absl::OkStatus();
}

// ---- Of the world ----

namespace {

std::string MeetingOf(const SessionSpec& spec) {
  return absl::StrCat(spec.who, " ", spec.instance, " communicators");
}

std::string NameOf(const SessionSpec& spec) {
  if (spec.plan != nullptr) return absl::StrCat("session ", spec.instance);
  return absl::StrCat("the ", spec.who, " on axis ",
                      spec.groups.empty() ? "" : spec.groups.front().axis);
}

}  // namespace

void Communicators::Decline(const SessionSpec& spec, const absl::Status& why) {
  spec.world->meeting()->Decline(MeetingOf(spec), spec.world_rank, why);
}

// Whoever fails here may fail others, which look at what has been created.
absl::Status Communicators::Borrow(const SessionSpec& spec, const Ids& ids) {
  ASSIGN_OR_RETURN(keeper_, world_->Keeper(spec.world_rank));
  generation_ = keeper_->Current();
  borrowed_.assign(ids.size(), nullptr);
  absl::StatusOr<bool> borrowed = false;
  if (meets_) borrowed = BorrowKept(spec, ids);
  if (borrowed.ok() && !*borrowed) BorrowOwn(spec, ids);
  aborter_ =
      std::make_shared<CommAborter>(rank_, generation_, this, NameOf(spec));
  return borrowed.status();
}

// False: ranks would have taken other ones, such as where one has not given
// back yet what another has; each then makes new ones, as it does where one has
// seen a failure that another one has not.
absl::StatusOr<bool> Communicators::BorrowKept(const SessionSpec& spec,
                                               const Ids& ids) {
  const std::string generation = absl::StrCat(generation_->number());
  std::vector<Claim> claims = {Claim::Of("generation", generation)};
  for (const auto& [id, number] : ids) {
    const KeptComm* const kept = borrowed_[number] =
        generation_->Borrow(WishOf(spec, number));
    claims.push_back(Claim::Of(id, absl::StrCat(kept->index)));
  }
  if (world_->spec().size == 1) return true;
  ASSIGN_OR_RETURN(const bool is_same,
                   world_->meeting()->Match(MeetingOf(spec), spec.world_rank,
                                            claims, spec.JoinTimeoutNs()));
  if (is_same) return true;
  generation_->Return(borrowed_, /*keep=*/true);
  borrowed_.assign(ids.size(), nullptr);
  ASSIGN_OR_RETURN(const std::vector<std::string> numbers,
                   world_->meeting()->AllGather(
                       absl::StrCat(MeetingOf(spec), " anew"), spec.world_rank,
                       generation, spec.JoinTimeoutNs()));
  uint64_t latest = 0;
  for (const std::string& each : numbers) {
    uint64_t number = 0;
    if (absl::SimpleAtoi(each, &number)) latest = std::max(latest, number);
  }
  generation_ = keeper_->AtLeast(latest);
  return false;
}

void Communicators::BorrowOwn(const SessionSpec& spec, const Ids& ids) {
  for (const auto& [id, number] : ids) {
    borrowed_[number] = generation_->BorrowOwn(WishOf(spec, number));
  }
}

CommWish Communicators::WishOf(const SessionSpec& spec, size_t number) const {
  const GroupSpec& group = spec.groups[group_of_[number]];
  return {.group = absl::StrCat(
              group.axis, " ", absl::StrJoin(group.ranks, ","),
              number < number_of_transfers_.size() ? "" : " sends"),
          .lane = LaneOf(spec, number),
          .max_members = LargestLaunch(spec),
          .owner = this};
}

// That of the device which launches go out on; -1: this rank has none.
int Communicators::LaneOf(const SessionSpec& spec, size_t number) const {
  if (spec.plan == nullptr || lanes_.empty()) return -1;
  for (const Launch& launch : spec.plan->launches) {
    if (NumberOf(launch) == number) return lanes_[launch.lane]->number();
  }
  return -1;
}

// Of the device, where launches go out on its lanes; else of the plan.
uint32_t Communicators::NumLanesOf(const SessionSpec& spec,
                                   size_t number) const {
  if (spec.plan == nullptr) {
    if (lanes_.empty()) return 1;
    return lanes_[std::min(number, lanes_.size() - 1)]->num_lanes();
  }
  if (lanes_.empty()) return spec.plan->num_comm_lanes;
  uint32_t of_any = 1;
  uint32_t of_own = 0;
  for (const Launch& launch : spec.plan->launches) {
    const uint32_t num_lanes = lanes_[launch.lane]->num_lanes();
    of_any = std::max(of_any, num_lanes);
    if (NumberOf(launch) == number) of_own = std::max(of_own, num_lanes);
  }
  return of_own == 0 ? of_any : of_own;
}

// Of the first communicator that is not ready; kNone: all are.
struct Communicators::Missing {
  size_t number = kNone;
  std::string what;
};

absl::Status Communicators::AwaitReady(const SessionSpec& spec) {
  if (backend_->comm_ready == nullptr) return absl::OkStatus();
  const int64_t limit_ns = std::min(kConnectNs, spec.JoinTimeoutNs());
  JoinWait wait(spec.world_rank, limit_ns);
  BackendRank::Turn turn(rank_);
  std::vector<bool> is_ready(comms_.size());
  while (true) {
    Missing missing;
    const absl::Status looked = LookReady(spec, &is_ready, &missing);
    if (!looked.ok() && !aborter_->failure().ok()) wait.OnOtherFailed();
    if (!looked.ok() || missing.number == kNone) return looked;
    const GroupSpec& group = spec.groups[group_of_[missing.number]];
    wait.OnMissing(group.axis, missing.what);
    if (wait.IsOver()) {
      return OfAxis(
          spec, group,
          absl::DeadlineExceededError(absl::StrCat(
              "backend '", backend_->name, "': rank ", spec.world_rank,
              " is not connected after ", limit_ns / 1'000'000, " ms",
              missing.what.empty() ? "" : ": ", missing.what)));
    }
    turn.Sleep(SystemClock::Get().NowNs() + kLookNs);
  }
}

// At all that are not ready, each time: members may look at theirs in other
// orders.
absl::Status Communicators::LookReady(const SessionSpec& spec,
                                      std::vector<bool>* is_ready,
                                      Missing* missing) {
  for (size_t number = 0; number < comms_.size(); ++number) {
    if ((*is_ready)[number]) continue;
    PluginMessage message;
    uint32_t ready = 0;
    const commsched_status_t code = backend_->comm_ready(
        comms_[number], &ready, message.Begin(), PluginMessage::size());
    if (code != COMMSCHED_OK) {
      return OfAxis(spec, spec.groups[group_of_[number]],
                    BackendFailure(*backend_, "comm_ready", code, message));
    }
    const absl::Status valid = CheckReady(*backend_, ready);
    if (!valid.ok()) return OfAxis(spec, spec.groups[group_of_[number]], valid);
    (*is_ready)[number] = ready == 1;
    if (ready == 1 || missing->number != kNone) continue;
    *missing = {number, std::string(message.text())};
  }
  return absl::OkStatus();
}

absl::Status Communicators::Expect(
    absl::Span<commsched_launch_t* const> launches,
    absl::Span<const uint32_t> numbers) {
  std::vector<std::vector<commsched_launch_t>> of_comm(comms_.size());
  for (size_t i = 0; i < launches.size(); ++i) {
    std::vector<commsched_launch_t>& expected = of_comm[numbers[i]];
    const uint32_t before =
        generation_ == nullptr ? 0 : borrowed_[numbers[i]]->num_expected;
    launches[i]->slot = before + static_cast<uint32_t>(expected.size());
    expected.push_back(*launches[i]);
  }
  if (backend_->comm_expect == nullptr) return absl::OkStatus();
  const BackendRank::Turn turn(rank_);
  for (size_t number : in_order_) {
    PluginMessage message;
    const commsched_status_t code =
        ExpectLaunches(*backend_, comms_[number], of_comm[number],
                       message.Begin(), PluginMessage::size());
    if (code != COMMSCHED_OK) {
      return BackendFailure(*backend_, "comm_expect", code, message);
    }
    if (generation_ == nullptr) continue;
    borrowed_[number]->num_expected +=
        static_cast<uint32_t>(of_comm[number].size());
  }
  return absl::OkStatus();
}

absl::StatusOr<commsched_launch_estimate_t> Communicators::Estimate(
    const commsched_launch_t& launch, uint32_t number) const {
  commsched_status_t code = COMMSCHED_UNIMPLEMENTED;
  commsched_launch_estimate_t estimate = commsched_launch_estimate_init();
  PluginMessage message;
  if (backend_->comm_estimate != nullptr) {
    code = backend_->comm_estimate(comms_[number], &launch, &estimate,
                                   message.Begin(), PluginMessage::size());
  }
  if (code == COMMSCHED_OK) return estimate;
  if (code == COMMSCHED_UNIMPLEMENTED && message.text().empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "backend '", backend_->name, "' does not tell how it does a launch"));
  }
  return BackendFailure(*backend_, "comm_estimate", code, message);
}

absl::Status Communicators::Register(void* address, uint64_t bytes,
                                     uint64_t* counter) {
  if (backend_->mem_register == nullptr || comms_.empty()) {
    return absl::OkStatus();
  }
  const BackendRank::Turn turn(rank_);
  PluginMessage message;
  void* handle = nullptr;
  const commsched_status_t code = backend_->mem_register(
      rank_->handle(), comms_.data(), static_cast<uint32_t>(comms_.size()),
      address, bytes, &handle, message.Begin(), PluginMessage::size());
  if (code != COMMSCHED_OK) {
    return BackendFailure(*backend_, "mem_register", code, message);
  }
  if (handle == nullptr) return absl::OkStatus();
  registered_.push_back(handle);
  ++*counter;
  return absl::OkStatus();
}

void Communicators::Abort(const absl::Status& why) {
  if (aborter_ == nullptr) return;
  world_->Tell(rank_->world_rank(), scope_, why);
  aborter_->OnFailure(why);
}

absl::Status Communicators::Close(int64_t timeout_ns) {
  if (aborter_ == nullptr) return absl::OkStatus();
  aborter_->Close();
  const int64_t deadline_ns =
      DeadlineAfter(SystemClock::Get().NowNs(), timeout_ns);
  {
    const BackendRank::Turn turn(rank_);
    for (void* handle : registered_) {
      backend_->mem_unregister(rank_->handle(), handle);
    }
  }
  registered_.clear();
  std::vector<void*> ended = std::exchange(comms_, {});
  if (generation_ != nullptr) {
    ended = generation_->Return(borrowed_, /*keep=*/!is_captured_);
    generation_.reset();
  }
  std::erase(ended, nullptr);
  return DestroyComms(rank_, ended, deadline_ns);
}

}  // namespace commsched
