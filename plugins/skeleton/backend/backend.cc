// A whole backend in one file: ranks are threads of one process that meet in a
// table, behind a mutex. Copy this folder and plugins/support, change the
// names, then what a communicator is. The rules are in commsched/plugin.h; the
// suite in test/conformance checks them, and this backend passes it.
//
// The shape is that of every backend whose launches take time. Launch posts and
// returns; whoever posts last does the work; Poll tells what has been done; and
// desc->wake says whenever a Poll may have become useful. A real backend moves
// bytes without a lock, in Poll or on threads of its own; here one mutex per
// communicator keeps the rules in sight. It is held while elements are copied,
// so a call may wait for that, but never for a rank that has not come.
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "commsched/plugin.h"
#include "elements.h"
#include "support/table.h"

namespace {

using commsched::kGuarded;
using commsched::Outcome;
using commsched::skeleton::Combine;
using commsched::skeleton::ElementBytes;

constexpr int64_t kNone = -1;

const commsched_host_t* host = nullptr;

// What one member of a communicator has said and done.
struct Member {
  bool joined = false;
  bool left = false;
  int64_t num_posted = 0;
  std::vector<int64_t> requests;  // The launch that has it, or kNone.
  void (*wake)(void* user) = nullptr;
  void* wake_user = nullptr;
};

// A communicator, shared by its members. Launches are numbered from 0; those
// below `num_done` are complete. All members launch in one order, so the one
// that completes a launch completes the oldest.
struct Group {
  explicit Group(const commsched_comm_desc_t& desc)
      : axis(desc.axis),
        ranks(desc.ranks, desc.ranks + desc.size),
        max_in_flight(desc.max_in_flight),
        members(desc.size),
        posted(size_t{desc.max_in_flight} * desc.size),
        started_ns(desc.max_in_flight) {
    inputs.reserve(members.size());
    outputs.reserve(members.size());
  }

  int size() const { return static_cast<int>(members.size()); }
  // What each member posted as launch `number`. A member posts the next one in
  // this place when that is done, since it has no more requests.
  commsched_launch_t* PostedAs(int64_t number) {
    return &posted[static_cast<size_t>(number % max_in_flight) *
                   members.size()];
  }

  const std::string axis;
  const std::vector<int32_t> ranks;
  const int64_t max_in_flight;

  std::mutex mu;  // Guards what follows.
  std::vector<Member> members;
  std::vector<commsched_launch_t> posted;
  std::vector<int64_t> started_ns;
  int64_t num_done = 0;
  Outcome failure;  // The first; it sticks.
  // Of the reduction that is being done; here since Launch allocates nothing.
  std::vector<const char*> inputs;
  std::vector<char*> outputs;
};

// What the ranks of one world share.
struct Instance {
  int32_t world_size = 0;
  std::mutex mu;
  std::map<std::string, std::shared_ptr<Group>> groups;  // Guarded by `mu`.
};

// A rank that is open.
struct Rank {
  Instance* instance;
  int world_rank;
  void (*wake)(void* user);
  void* wake_user;
};

// A member's handle.
struct Comm {
  Instance* instance;
  std::string id;
  std::shared_ptr<Group> group;
  int rank;
};

// ---- A collective, once every member has posted it --------------------------

// Elements in front of part `part` of a side whose parts are `stride` apart.
uint64_t PartOffset(const commsched_member_t& member, uint64_t stride,
                    int64_t first, int64_t step, int part) {
  if (member.counts == nullptr) {
    return static_cast<uint64_t>(part) * (stride != 0 ? stride : member.count);
  }
  uint64_t offset = 0;
  for (int p = 0; p < part; ++p) offset += member.counts[first + p * step];
  return offset;
}

uint64_t PartCount(const commsched_member_t& member, int64_t part) {
  return member.counts == nullptr ? member.count : member.counts[part];
}

void Copy(const commsched_member_t& from, uint64_t from_offset,
          const commsched_member_t& to, uint64_t to_offset, uint64_t count,
          uint64_t element) {
  const char* source = static_cast<const char*>(from.input);
  char* target = static_cast<char*>(to.output);
  if (count == 0) return;
  source += from_offset * element;
  target += to_offset * element;
  if (source != target) memcpy(target, source, count * element);
}

// A collective of all ranks: member `m` of their launches.
struct Collective {
  const commsched_member_t& At(int rank) const {
    return launches[rank].members[m];
  }

  const commsched_launch_t* launches;
  int size;
  uint32_t m;
  uint64_t element;  // Bytes.
};

// What the inputs' elements of part `part` sum to goes to ranks first..last. In
// place, element i of an output is element i of an input, which is read before
// it is written.
void Reduce(Group* group, const Collective& all, int part, uint64_t count,
            int first, int last) {
  if (count == 0) return;
  group->inputs.clear();
  group->outputs.clear();
  for (int r = 0; r < all.size; ++r) {
    const commsched_member_t& member = all.At(r);
    const uint64_t from =
        part == 0 ? 0 : PartOffset(member, member.input_stride, 0, 1, part);
    group->inputs.push_back(static_cast<const char*>(member.input) +
                            from * all.element);
  }
  for (int r = first; r <= last; ++r) {
    group->outputs.push_back(static_cast<char*>(all.At(r).output));
  }
  Combine(*all.launches, group->inputs, group->outputs, count);
}

// What rank `to` gets, by copies.
void Receive(const Collective& all, int to) {
  const commsched_launch_t& launch = *all.launches;
  const commsched_member_t& target = all.At(to);
  if (launch.kind == COMMSCHED_BROADCAST) {
    Copy(all.At(launch.root), 0, target, 0, target.count, all.element);
    return;
  }
  for (int r = 0; r < all.size; ++r) {
    const commsched_member_t& source = all.At(r);
    if (launch.kind == COMMSCHED_ALL_GATHER) {
      Copy(source, 0, target, PartOffset(target, target.output_stride, 0, 1, r),
           PartCount(target, r), all.element);
      continue;
    }
    const int64_t row = int64_t{r} * all.size;  // ALL_TO_ALL
    Copy(source, PartOffset(source, source.input_stride, row, 1, to), target,
         PartOffset(target, target.output_stride, to, all.size, r),
         PartCount(source, row + to), all.element);
  }
}

void RunMember(Group* group, const Collective& all) {
  const commsched_launch_t& launch = *all.launches;
  const uint64_t count = all.At(0).count;
  switch (launch.kind) {
    case COMMSCHED_ALL_REDUCE:
      Reduce(group, all, 0, count, 0, all.size - 1);
      break;
    case COMMSCHED_REDUCE:
      Reduce(group, all, 0, count, launch.root, launch.root);
      break;
    case COMMSCHED_REDUCE_SCATTER:
      for (int r = 0; r < all.size; ++r) {
        Reduce(group, all, r, PartCount(all.At(r), r), r, r);
      }
      break;
    case COMMSCHED_BROADCAST:
    case COMMSCHED_ALL_GATHER:
    case COMMSCHED_ALL_TO_ALL:
      for (int to = 0; to < all.size; ++to) Receive(all, to);
      break;
    default:
      break;  // A barrier: nothing more than that all have come.
  }
}

// ---- State of a communicator; its lock is held ------------------------------

void WakeAll(Group* group) {
  for (const Member& member : group->members) {
    if (member.wake != nullptr) member.wake(member.wake_user);
  }
}

void Fail(Group* group, commsched_status_t status, const std::string& reason) {
  if (!group->failure.ok()) return;
  group->failure = {status, reason};
  WakeAll(group);
}

// One that is gone never posts launch `number`: nobody may wait for that.
void FailIfSomeoneLeft(Group* group, int64_t number) {
  for (size_t r = 0; r < group->members.size(); ++r) {
    const Member& member = group->members[r];
    if (!member.left || member.num_posted > number) continue;
    Fail(group, COMMSCHED_ABORTED,
         "rank " + std::to_string(group->ranks[r]) + " left axis '" +
             group->axis + "' before launch #" + std::to_string(number));
    return;
  }
}

void RunIfAllHavePosted(Group* group, int64_t number) {
  for (const Member& member : group->members) {
    if (member.num_posted <= number) return;
  }
  commsched_launch_t* launches = group->PostedAs(number);
  group->started_ns[static_cast<size_t>(number % group->max_in_flight)] =
      host->now_ns(host->user);
  for (uint32_t m = 0; m < launches->num_members; ++m) {
    RunMember(group,
              {launches, group->size(), m, ElementBytes(launches->dtype)});
  }
  group->num_done = number + 1;
  WakeAll(group);
}

// ---- The table --------------------------------------------------------------
//
// No exception may leave a function of it, and what fails says why: kGuarded
// (support/table.h) sees to both.

Outcome Init(const commsched_host_t* given) {
  // A backend that cannot run on this machine returns UNAVAILABLE, and says
  // why.
  host = given;
  return {};
}

Outcome InstanceCreate(const commsched_instance_desc_t* desc,
                       void** out_instance) {
  if (desc->config[0] != '\0') {
    return {COMMSCHED_INVALID_ARGUMENT, "takes no configuration, but got '" +
                                            std::string(desc->config) + "'"};
  }
  auto* instance = new Instance;
  instance->world_size = desc->world_size;
  *out_instance = instance;
  return {};
}

void InstanceDestroy(void* instance) {
  delete static_cast<Instance*>(instance);
}

std::string Text(const std::vector<int32_t>& ranks) {
  std::string text;
  for (int32_t rank : ranks) {
    if (!text.empty()) text += ',';
    text += std::to_string(rank);
  }
  return text;
}

// Why nobody could join as `desc` says; empty if one can.
std::string Nonsense(const commsched_comm_desc_t& desc, int32_t world_size) {
  for (int32_t r = 0; r < desc.size; ++r) {
    if (desc.ranks[r] < 0 || desc.ranks[r] >= world_size) {
      return "rank " + std::to_string(desc.ranks[r]) + ", but the world has " +
             std::to_string(world_size);
    }
    for (int32_t s = 0; s < r; ++s) {
      if (desc.ranks[s] == desc.ranks[r]) {
        return "rank " + std::to_string(desc.ranks[r]) + " is a member twice";
      }
    }
  }
  if (desc.max_in_flight == 0) return "0 launches in flight";
  return "";
}

// In what `desc` differs from what the members before said; empty if it agrees.
std::string Disagreement(const commsched_comm_desc_t& desc,
                         const Group& group) {
  const std::vector<int32_t> ranks(desc.ranks, desc.ranks + desc.size);
  if (ranks != group.ranks) {
    return "gave ranks " + Text(ranks) + ", others " + Text(group.ranks);
  }
  if (desc.max_in_flight != group.max_in_flight) {
    return "gave " + std::to_string(desc.max_in_flight) +
           " launches in flight, others " + std::to_string(group.max_in_flight);
  }
  return "";
}

// A backend that has a device, a socket or a memory pool of the rank opens it
// here.
Outcome RankOpen(void* instance, const commsched_backend_rank_desc_t* desc,
                 void** out_rank) {
  *out_rank = new Rank{static_cast<Instance*>(instance), desc->world_rank,
                       desc->wake, desc->wake_user};
  return {};
}

void RankClose(void* rank) { delete static_cast<Rank*>(rank); }

Outcome CommCreate(void* opaque, const commsched_comm_desc_t* desc,
                   void** out_comm) {
  const auto* rank = static_cast<Rank*>(opaque);
  Instance* instance = rank->instance;
  const std::lock_guard<std::mutex> lock(instance->mu);
  std::string refused = Nonsense(*desc, instance->world_size);
  std::shared_ptr<Group> group;
  if (refused.empty()) {
    std::shared_ptr<Group>& known = instance->groups[desc->id];
    if (known == nullptr) known = std::make_shared<Group>(*desc);
    group = known;
    refused = Disagreement(*desc, *group);
  }
  if (!refused.empty()) {
    return {COMMSCHED_INVALID_ARGUMENT,
            "axis '" + std::string(desc->axis) + "': rank " +
                std::to_string(rank->world_rank) + " " + refused};
  }
  const std::lock_guard<std::mutex> group_lock(group->mu);
  Member& member = group->members[static_cast<size_t>(desc->rank)];
  if (member.joined) {
    return {COMMSCHED_ALREADY_EXISTS,
            "rank " + std::to_string(rank->world_rank) +
                " has already joined '" + desc->id + "'"};
  }
  member.requests.assign(desc->max_in_flight, kNone);
  member.wake = rank->wake;
  member.wake_user = rank->wake_user;
  *out_comm = new Comm{instance, desc->id, group, desc->rank};
  member.joined = true;
  return {};
}

// What it is given has been checked by the planner, and all ranks have the same
// plan. A backend that finds members to differ says so; this one trusts them.
Outcome Launch(void* opaque, const commsched_launch_t* launch, uint32_t request,
               commsched_stream_t /*stream*/) {
  auto* comm = static_cast<Comm*>(opaque);
  Group* group = comm->group.get();
  const std::lock_guard<std::mutex> lock(group->mu);
  Member& member = group->members[static_cast<size_t>(comm->rank)];
  if (group->failure.ok() && member.requests[request] != kNone) {
    Fail(group, COMMSCHED_INVALID_ARGUMENT,
         "request " + std::to_string(request) + " of rank " +
             std::to_string(comm->rank) + " is in use");
  }
  const int64_t number = member.num_posted;
  FailIfSomeoneLeft(group, number);
  if (!group->failure.ok()) return group->failure;
  member.requests[request] = number;
  group->PostedAs(number)[comm->rank] = *launch;
  member.num_posted = number + 1;
  RunIfAllHavePosted(group, number);
  return {};
}

Outcome Poll(void* opaque, uint32_t request,
             commsched_launch_result_t* out_result) {
  auto* comm = static_cast<Comm*>(opaque);
  Group* group = comm->group.get();
  const std::lock_guard<std::mutex> lock(group->mu);
  int64_t& number =
      group->members[static_cast<size_t>(comm->rank)].requests[request];
  *out_result = {};
  if (number < group->num_done) {
    out_result->done = 1;
    out_result->started_ns =
        group->started_ns[static_cast<size_t>(number % group->max_in_flight)];
    number = kNone;  // The request is free again.
    return {};
  }
  return group->failure;
}

// Only this rank's members must fail. Here they share one failure, since any of
// them may be copying from the others' memory.
void Abort(void* /*rank*/, void* const* comms, uint32_t num_comms,
           commsched_status_t status, const char* message) {
  for (uint32_t i = 0; i < num_comms; ++i) {
    Group* group = static_cast<Comm*>(comms[i])->group.get();
    const std::lock_guard<std::mutex> lock(group->mu);
    Fail(group, status, message);
  }
}

// Nothing is touched once the lock is free, so there is nothing to wait for.
Outcome CommDestroy(void* opaque, int64_t /*deadline_ns*/) {
  const std::unique_ptr<Comm> comm(static_cast<Comm*>(opaque));
  const std::lock_guard<std::mutex> lock(comm->instance->mu);
  bool is_last = true;
  {
    Group* group = comm->group.get();
    const std::lock_guard<std::mutex> group_lock(group->mu);
    Member& mine = group->members[static_cast<size_t>(comm->rank)];
    mine.left = true;
    mine.wake = nullptr;
    if (mine.num_posted > group->num_done) {
      Fail(group, COMMSCHED_ABORTED,
           "rank " + std::to_string(comm->rank) + " left axis '" + group->axis +
               "' with launch #" + std::to_string(group->num_done) +
               " in flight");
    }
    for (const Member& member : group->members) {
      is_last &= member.left;
      if (member.num_posted > mine.num_posted) {
        FailIfSomeoneLeft(group, mine.num_posted);
      }
    }
  }
  if (is_last) comm->instance->groups.erase(comm->id);
  return {};
}

Outcome CommStatus(void* opaque) {
  Group* group = static_cast<Comm*>(opaque)->group.get();
  const std::lock_guard<std::mutex> lock(group->mu);
  return group->failure;
}

uint32_t CommMissing(void* opaque, uint32_t request, int32_t* out_ranks,
                     uint32_t capacity) {
  auto* comm = static_cast<Comm*>(opaque);
  Group* group = comm->group.get();
  const std::lock_guard<std::mutex> lock(group->mu);
  const int64_t number =
      group->members[static_cast<size_t>(comm->rank)].requests[request];
  uint32_t num_missing = 0;
  for (int r = 0; number != kNone && r < group->size(); ++r) {
    if (group->members[static_cast<size_t>(r)].num_posted > number) continue;
    if (num_missing < capacity) out_ranks[num_missing] = r;
    ++num_missing;
  }
  return num_missing;
}

const commsched_backend_t kBackend = {
    .struct_size = sizeof(commsched_backend_t),
    .abi = COMMSCHED_BACKEND_ABI,
    .capabilities = COMMSCHED_BACKEND_VECTORED | COMMSCHED_BACKEND_TREE_SUMS |
                    COMMSCHED_BACKEND_STRIDED,
    .name = "skeleton",
    .version = "3",
    .kinds = 0,  // All of them, as of what follows.
    .dtypes = 0,
    .reductions = 0,
    .memory_kinds = 0,  // Of the host.
    .instance_create = kGuarded<&InstanceCreate>,
    .instance_destroy = kGuarded<&InstanceDestroy>,
    .rank_open = kGuarded<&RankOpen>,
    .rank_close = kGuarded<&RankClose>,
    .comm_create = kGuarded<&CommCreate>,
    .launch = kGuarded<&Launch>,
    .poll = kGuarded<&Poll>,
    .abort = kGuarded<&Abort>,
    .comm_destroy = kGuarded<&CommDestroy>,
    .comm_ready = nullptr,  // Who comes late is waited for by its launches.
    .comm_status = kGuarded<&CommStatus>,
    .comm_expect = nullptr,  // Launches need nothing of their own.
    .comm_missing = kGuarded<&CommMissing>,
    .mem_register = nullptr,  // Any memory will do.
    .mem_unregister = nullptr,
    // The host sleeps by itself, until `wake`. One whose news come through a
    // descriptor sleeps on that here.
    .wait = nullptr,
    .interrupt = nullptr,
    .mem_alloc = nullptr,
    .mem_free = nullptr,
    .mem_stats = nullptr,
    .comm_silent = nullptr,  // Members see each other.
    .comm_starts = nullptr,
    .comm_estimate = nullptr,
    .launch_bytes = sizeof(commsched_launch_t),
};

const commsched_plugin_t kPlugins[] = {
    {COMMSCHED_PLUGIN_BACKEND, 0, &kBackend},
};

}  // namespace

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 =
    commsched::PluginList(kPlugins, kGuarded<&Init>);
