#include "session/communicators.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/mutex.h"
#include "comm/table_support.h"

namespace commsched {
namespace {

// Of a session without a plan: 1.
uint32_t LargestLaunch(const Plan* plan) {
  size_t members = 1;
  if (plan == nullptr) return static_cast<uint32_t>(members);
  for (const Launch& launch : plan->launches) {
    members = std::max(members, launch.members.size());
  }
  return static_cast<uint32_t>(members);
}

}  // namespace

// Aborts them when a rank is lost. Thread-safe.
class Communicators::Aborter final : public LossWatcher {
 public:
  explicit Aborter(const commsched_backend_t* backend) : backend_(backend) {}

  // They live until Close().
  void Add(void* comm) {
    MutexLock lock(&mu_);
    comms_.push_back(comm);
    if (!lost_.ok()) AbortLocked(comm);
  }
  void Close() {
    MutexLock lock(&mu_);
    comms_.clear();
  }

  void OnLost(const absl::Status& why) override {
    MutexLock lock(&mu_);
    lost_ = why;
    for (void* comm : comms_) AbortLocked(comm);
  }

 private:
  void AbortLocked(void* comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::string message(lost_.message());
    backend_->comm_abort(comm, static_cast<commsched_status_t>(lost_.code()),
                         message.c_str());
  }

  const commsched_backend_t* const backend_;
  Mutex mu_;
  std::vector<void*> comms_ ABSL_GUARDED_BY(mu_);
  absl::Status lost_ ABSL_GUARDED_BY(mu_);
};

Communicators::Communicators(std::shared_ptr<World> world)
    : world_(std::move(world)),
      backend_(world_->backend()),
      aborter_(std::make_shared<Aborter>(backend_)) {}

Communicators::~Communicators() {
  aborter_->Close();
  for (void* comm : comms_) backend_->comm_destroy(comm);
}

absl::Status Communicators::Create(const SessionSpec& spec, uint32_t requests,
                                   Parker* parker) {
  for (const GroupSpec& group : spec.groups) {
    // By the name that the planner knows a shared group by: its number is
    // another one in each role.
    const size_t number = comms_.size();
    const std::string name = spec.plan == nullptr
                                 ? absl::StrCat(number)
                                 : spec.plan->graph->groups()[number].name;
    const std::string id =
        absl::StrCat("session ", spec.instance, " group ", name, " ",
                     group.axis, " ", absl::StrJoin(group.ranks, ","));
    commsched_comm_desc_t desc = {};
    desc.struct_size = sizeof(desc);
    desc.id = id.c_str();
    desc.axis = group.axis.c_str();
    desc.ranks = group.ranks.data();
    desc.size = static_cast<int32_t>(group.ranks.size());
    desc.rank = group.rank;
    desc.world_rank = spec.world_rank;
    desc.max_in_flight = requests;
    desc.max_members = LargestLaunch(spec.plan.get());
    desc.wake = [](void* user) { static_cast<Parker*>(user)->Unpark(); };
    desc.wake_user = parker;
    void* comm = nullptr;
    PluginMessage message;
    const commsched_status_t code =
        backend_->comm_create(world_->backend_instance(), &desc, &comm,
                              message.Begin(), PluginMessage::size());
    if (code != COMMSCHED_OK) {
      const absl::Status failure =
          BackendFailure(*backend_, "comm_create", code, message);
      return absl::Status(failure.code(),
                          absl::StrCat("session: communicator of axis ",
                                       group.axis, ": ", failure.message()));
    }
    comms_.push_back(comm);
    aborter_->Add(comm);
  }
  sleeper_.emplace(world_.get(), parker);
  world_->Watch(aborter_);
  return absl::OkStatus();
}

absl::Status Communicators::Register(void* address, uint64_t bytes,
                                     uint64_t* counter) {
  if (backend_->comm_register == nullptr) return absl::OkStatus();
  for (void* comm : comms_) {
    PluginMessage message;
    const commsched_status_t code = backend_->comm_register(
        comm, address, bytes, message.Begin(), PluginMessage::size());
    if (code != COMMSCHED_OK) {
      return BackendFailure(*backend_, "comm_register", code, message);
    }
    ++*counter;
  }
  return absl::OkStatus();
}

}  // namespace commsched
