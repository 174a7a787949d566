#include "exec/observers.h"

#include <cstring>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "comm/plugin/table_support.h"
#include "plan/explain/launch_reason_text.h"
#include "plan/launch_reason.h"

namespace commsched {
namespace {

// Runs function `name` of the plugin, and makes a Status of what it says.
template <typename Call>
absl::Status Guarded(const char* name, Call call) {
  PluginMessage message;
  try {
    const commsched_status_t code =
        call(message.Begin(), PluginMessage::size());
    if (code == COMMSCHED_OK) return absl::OkStatus();
    return PluginFailure("it", name, code, message);
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("it threw: ", e.what()));
  } catch (...) {
    return absl::InternalError("it threw an exception of unknown type");
  }
}

void LogFailure(const commsched_observer_t* table, const char* call,
                const absl::Status& failure) {
  Log(LogLevel::kWarning, "observer '", table->name, "': ", call, ": ",
      failure.ToString());
}

}  // namespace

Observers::Observers(const std::vector<const commsched_observer_t*>& tables,
                     const Program& program, int world_rank, int world_size) {
  Describe(program, world_rank, world_size);
  for (const commsched_observer_t* table : tables) Attach(table);
}

Observers::~Observers() {
  for (const Attached& observer : attached_) {
    const absl::Status detached = Guarded("detach", [&](char*, uint64_t) {
      observer.table->detach(observer.observation);
      return commsched_status_t{COMMSCHED_OK};
    });
    if (!detached.ok()) LogFailure(observer.table, "detach", detached);
  }
}

void Observers::Describe(const Program& program, int world_rank,
                         int world_size) {
  const Plan& plan = *program.plan;
  texts_.reserve(3 * plan.launches.size());  // Strings must not move.
  auto keep = [&](std::string text) {
    texts_.push_back(std::move(text));
    return texts_.back().c_str();
  };
  for (uint32_t i = 0; i < plan.launches.size(); ++i) {
    const Launch& launch = plan.launches[i];
    commsched_observed_launch_t observed = {};
    observed.struct_size = sizeof(observed);
    observed.name = keep(program.LaunchName(i));
    observed.axis = keep(plan.graph->group(launch.group).name);
    observed.reason = keep(ReasonText(plan, launch));
    observed.kind = static_cast<commsched_collective_t>(launch.kind);
    observed.dtype = static_cast<commsched_dtype_t>(launch.dtype);
    observed.num_members = static_cast<uint32_t>(launch.members.size());
    observed.lane = launch.lane;
    observed.coded = launch.coded ? 1 : 0;
    observed.bytes = launch.payload_bytes;
    launches_.push_back(observed);
  }
  for (const auto& launch : launches_) pointers_.push_back(&launch);
  plan_.struct_size = sizeof(plan_);
  plan_.world_rank = world_rank;
  plan_.world_size = world_size;
  static_assert(sizeof(plan_.fingerprint) == sizeof(plan.fingerprint));
  std::memcpy(plan_.fingerprint, plan.fingerprint.data(),
              sizeof(plan_.fingerprint));
  plan_.num_ops = plan.graph->ops().size();
  plan_.num_launches = launches_.size();
  plan_.launches = pointers_.data();
}

void Observers::Attach(const commsched_observer_t* table) {
  void* observation = nullptr;
  const absl::Status attached =
      Guarded("attach", [&](char* message, uint64_t size) {
        return table->attach(&plan_, &observation, message, size);
      });
  if (!attached.ok()) {
    LogFailure(table, "attach", attached);
    return;
  }
  attached_.push_back({table, observation, table->events, false});
}

void Observers::Issued(uint32_t launch, uint64_t step, int64_t now_ns) {
  commsched_observer_event_t event = {};
  event.struct_size = sizeof(event);
  event.step = step;
  event.time_ns = now_ns;
  if (launch == 0) {
    event.kind = COMMSCHED_OBSERVE_STEP_BEGIN;
    Send(event);
  }
  event.kind = COMMSCHED_OBSERVE_LAUNCH_BEGIN;
  event.launch = launch;
  Send(event);
}

void Observers::Retired(uint32_t launch, uint64_t step, int64_t begin_ns,
                        int64_t now_ns, const CodecError* error) {
  commsched_observer_event_t event = {};
  event.struct_size = sizeof(event);
  event.kind = COMMSCHED_OBSERVE_LAUNCH_END;
  event.launch = launch;
  event.step = step;
  event.time_ns = now_ns;
  event.begin_ns = begin_ns;
  if (error != nullptr) {
    event.max_abs_error = error->max_abs;
    event.rms_relative_error = error->rms_relative;
  }
  Send(event);
  uint32_t& retired = retired_[step % kMaxSteps];
  if (++retired < launches_.size()) return;
  retired = 0;
  event = {};
  event.struct_size = sizeof(event);
  event.kind = COMMSCHED_OBSERVE_STEP_END;
  event.step = step;
  event.time_ns = now_ns;
  Send(event);
}

void Observers::Failed(const absl::Status& failure, int64_t now_ns) {
  if (failed_) return;
  failed_ = true;
  const std::string message(failure.message());
  commsched_observer_event_t event = {};
  event.struct_size = sizeof(event);
  event.kind = COMMSCHED_OBSERVE_FAILURE;
  event.time_ns = now_ns;
  event.status = static_cast<commsched_status_t>(failure.code());
  event.message = message.c_str();
  Send(event);
}

void Observers::Send(const commsched_observer_event_t& event) {
  for (Attached& observer : attached_) {
    if ((observer.events & event.kind) != 0) SendTo(&observer, event);
  }
}

void Observers::SendTo(Attached* observer,
                       const commsched_observer_event_t& event) {
  const absl::Status status =
      Guarded("on_event", [&](char* message, uint64_t size) {
        return observer->table->on_event(observer->observation, &event, message,
                                         size);
      });
  if (status.ok()) return;
  if (absl::IsCancelled(status)) {
    observer->events = 0;
  } else if (!observer->failed) {
    observer->failed = true;
    LogFailure(observer->table, "on_event", status);
  }
}

}  // namespace commsched
