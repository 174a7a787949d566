#include "exec/flatten.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace commsched {
namespace {

// A generation is waited for up to the greatest distance later, by a host that
// is up to kRunAhead steps ahead.
uint32_t EventDepth(const Plan& plan) {
  int64_t distance = 0;
  const auto look = [&](absl::Span<const Wait> waits) {
    for (const Wait& wait : waits) {
      distance = std::max<int64_t>(distance, wait.distance);
    }
  };
  for (const ComputeNode& node : plan.nodes) look(node.waits);
  for (const Launch& launch : plan.launches) look(launch.waits);
  return Program::kRunAhead + static_cast<uint32_t>(distance) + 1;
}

// Fills one Program; each method resolves one of its arrays.
class Flattener {
 public:
  Flattener(std::shared_ptr<const Plan> plan, const Binding& binding)
      : plan_(*plan),
        graph_(*plan->graph),
        binding_(binding),
        event_depth_(EventDepth(plan_)),
        program_(std::make_unique<Program>()) {
    program_->plan = std::move(plan);
    program_->issue_inline = binding.issue_inline;
    program_->enqueue = binding.enqueue;
    program_->buffer_address = binding.buffer_address;
  }

  absl::StatusOr<std::unique_ptr<Program>> Run() {
    program_->nodes.resize(plan_.nodes.size());
    program_->launches.resize(plan_.launches.size());
    RETURN_IF_ERROR(MakeEvents());
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) FillNode(i);
    for (uint32_t i = 0; i < plan_.launches.size(); ++i) FillLaunch(i);
    FillFeeds();
    FillReads();
    FillMembers(plan_, binding_, program_.get());
    RETURN_IF_ERROR(FillLateSides(plan_, binding_, program_.get()));
    RETURN_IF_ERROR(FillInstructions());
    return std::move(program_);
  }

 private:
  // Whether the order of the host's calls leaves it open if `wait` is met.
  bool MayBeAhead(const Wait& wait) const {
    if (wait.producer.kind == NodeRef::Kind::kLaunch) {
      return !binding_.issue_inline;
    }
    const uint32_t node = plan_.node_of_op[wait.producer.index];
    return !binding_.caller_lanes[plan_.nodes[node].lane];
  }

  // An event for every node that somebody waits for; for the last launch of
  // each lane, which is what a drain waits for; for every launch on memory of
  // the caller's, which is what a release waits for; and for every one that is
  // submitted.
  absl::Status MakeEvents() {
    if (binding_.issue_inline) return absl::OkStatus();
    std::vector<bool> node_waited(plan_.nodes.size());
    std::vector<bool> launch_waited(plan_.launches.size(), binding_.enqueue);
    auto mark = [&](absl::Span<const Wait> waits) {
      for (const Wait& wait : waits) {
        if (!MayBeAhead(wait)) continue;
        if (wait.producer.kind == NodeRef::Kind::kLaunch) {
          launch_waited[wait.producer.index] = true;
        } else {
          node_waited[plan_.node_of_op[wait.producer.index]] = true;
        }
      }
    };
    for (const ComputeNode& node : plan_.nodes) mark(node.waits);
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      if (WritesOnWorker(plan_.nodes[i])) node_waited[i] = true;
    }
    std::vector<uint32_t> last_of_lane;
    for (uint32_t i = 0; i < plan_.launches.size(); ++i) {
      const Launch& launch = plan_.launches[i];
      mark(launch.waits);
      if (TouchesCallersMemory(launch)) launch_waited[i] = true;
      if (launch.lane >= last_of_lane.size()) {
        last_of_lane.resize(launch.lane + 1, Plan::kNone);
      }
      last_of_lane[launch.lane] = i;
    }
    for (uint32_t i : last_of_lane) {
      if (i != Plan::kNone) launch_waited[i] = true;
    }
    for (OpId op : binding_.submitted) {
      for (LaunchId launch : plan_.LaunchesOf(op)) {
        launch_waited[launch.value()] = true;
      }
    }
    for (size_t i = 0; i < node_waited.size(); ++i) {
      if (!node_waited[i]) continue;
      ASSIGN_OR_RETURN(program_->nodes[i].event, NewEvent());
    }
    for (size_t i = 0; i < launch_waited.size(); ++i) {
      if (!launch_waited[i]) continue;
      ASSIGN_OR_RETURN(program_->launches[i].event, NewEvent());
    }
    return absl::OkStatus();
  }

  bool TouchesCallersMemory(const Launch& launch) const {
    for (OpId op : launch.members) {
      for (const Access& access : graph_.op(op).accesses) {
        if (graph_.buffer(access.buffer).ownership != Ownership::kOwned) {
          return true;
        }
      }
    }
    return false;
  }

  bool WritesOnWorker(const ComputeNode& node) const {
    if (binding_.caller_lanes[node.lane]) return false;
    const std::vector<Access>& accesses = graph_.op(node.op).accesses;
    return std::any_of(
        accesses.begin(), accesses.end(),
        [](const Access& access) { return Writes(access.mode); });
  }

  absl::StatusOr<Event*> NewEvent() {
    ASSIGN_OR_RETURN(std::unique_ptr<Event> event,
                     binding_.device->CreateEvent(event_depth_));
    program_->events.push_back(std::move(event));
    return program_->events.back().get();
  }

  Span32 AddWaits(absl::Span<const Wait> waits) {
    Span32 span{static_cast<uint32_t>(program_->waits.size()), 0};
    for (const Wait& wait : waits) {
      if (!MayBeAhead(wait)) continue;
      ++span.count;
      Event* event =
          wait.producer.kind == NodeRef::Kind::kLaunch
              ? program_->launches[wait.producer.index].event
              : program_->nodes[plan_.node_of_op[wait.producer.index]].event;
      program_->waits.push_back(
          {event, static_cast<uint32_t>(wait.distance), wait.cause});
    }
    return span;
  }

  void FillNode(uint32_t index) {
    const ComputeNode& from = plan_.nodes[index];
    NodeProgram& node = program_->nodes[index];
    node.op = from.op;
    node.lane = from.lane;
    node.waits = AddWaits(from.waits);
    node.after = {static_cast<uint32_t>(program_->after.size()),
                  static_cast<uint32_t>(from.after.size())};
    for (OpId op : from.after) {
      program_->after.push_back(plan_.node_of_op[op.value()]);
    }
    node.due_needed = from.DueNeeded();
  }

  void FillLaunch(uint32_t index) {
    const Launch& from = plan_.launches[index];
    LaunchProgram& launch = program_->launches[index];
    launch.call.struct_size = sizeof(launch.call);
    launch.call.key = from.key;
    launch.call.slot = UINT32_MAX;
    launch.call.kind = static_cast<commsched_collective_t>(from.kind);
    launch.call.dtype = static_cast<commsched_dtype_t>(from.dtype);
    launch.call.reduce_op = static_cast<commsched_reduce_op_t>(from.reduce_op);
    launch.call.root = from.root;
    launch.call.deterministic = plan_.options.deterministic ? 1 : 0;
    launch.group = from.group.value();
    launch.lane = from.lane;
    launch.payload_bytes = from.payload_bytes;
    launch.num_collectives = static_cast<uint32_t>(from.members.size());
    launch.waits = AddWaits(from.waits);
    launch.producers = {static_cast<uint32_t>(program_->producers.size()),
                        static_cast<uint32_t>(from.producers.size())};
    for (OpId op : from.producers) {
      program_->producers.push_back(plan_.node_of_op[op.value()]);
    }
  }

  // Inverts Launch::producers.
  void FillFeeds() {
    std::vector<std::vector<uint32_t>> feeds(plan_.nodes.size());
    for (uint32_t i = 0; i < program_->launches.size(); ++i) {
      const Span32 span = program_->launches[i].producers;
      for (uint32_t p = 0; p < span.count; ++p) {
        feeds[program_->producers[span.begin + p]].push_back(i);
      }
    }
    for (size_t i = 0; i < feeds.size(); ++i) {
      program_->nodes[i].feeds = {static_cast<uint32_t>(program_->feeds.size()),
                                  static_cast<uint32_t>(feeds[i].size())};
      program_->feeds.insert(program_->feeds.end(), feeds[i].begin(),
                             feeds[i].end());
    }
  }

  // Reads of what launches wrote, from the graph's dependencies and not from
  // the plan's waits, so that I12 does not rest on what it checks.
  void FillReads() {
    std::vector<std::vector<VersionedRead>> reads(plan_.nodes.size());
    for (const Dependency& edge : plan_.dependencies.edges) {
      if (edge.hazard != Hazard::kReadAfterWrite) continue;
      const uint32_t node = plan_.node_of_op[edge.to.value()];
      if (node == Plan::kNone) continue;
      for (LaunchId launch : plan_.LaunchesOf(edge.from)) {
        reads[node].push_back(
            {launch.value(), static_cast<uint32_t>(edge.distance)});
      }
    }
    for (size_t i = 0; i < reads.size(); ++i) {
      program_->nodes[i].reads = {static_cast<uint32_t>(program_->reads.size()),
                                  static_cast<uint32_t>(reads[i].size())};
      program_->reads.insert(program_->reads.end(), reads[i].begin(),
                             reads[i].end());
    }
  }

  absl::Status FillInstructions() {
    uint32_t issued = 0;
    auto issue_until = [&](uint32_t nodes_done) {
      uint32_t due = issued;
      while (due < plan_.launches.size() &&
             plan_.due_after[due] <= nodes_done) {
        ++due;
      }
      if (due == issued) return;
      issued = due;
      program_->instructions.push_back({Instruction::Kind::kIssue, due});
    };
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
      issue_until(i);
      if (program_->nodes[i].due_needed > issued) {
        return absl::InternalError(
            absl::StrCat("op '", program_->OpName(i), "' comes before launch ",
                         program_->LaunchName(issued), " is due"));
      }
      program_->instructions.push_back({Instruction::Kind::kNode, i});
    }
    issue_until(static_cast<uint32_t>(plan_.nodes.size()));
    return absl::OkStatus();
  }

  const Plan& plan_;
  const Graph& graph_;
  const Binding& binding_;
  const uint32_t event_depth_;
  std::unique_ptr<Program> program_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Program>> Flatten(
    std::shared_ptr<const Plan> plan, const Binding& binding) {
  return Flattener(std::move(plan), binding).Run();
}

}  // namespace commsched
