#include <algorithm>

#include "absl/strings/str_cat.h"
#include "test/property/virtual_run.h"

namespace commsched::test {

bool VirtualRun::IsLegal(const Rank& rank, uint32_t node) const {
  const ComputeNode& n = rank.plan->nodes[node];
  for (OpId op : n.after) {
    if (rank.nodes[rank.plan->node_of_op[op.value()]] != NodeState::kDone) {
      return false;
    }
  }
  for (LaunchId launch : n.needs) {
    if (launch.value() >= rank.due) return false;
  }
  return true;
}

// Launches are due in key order, once the host has called all producers.
void VirtualRun::MoveDue(Rank& rank) {
  const Plan& plan = *rank.plan;
  for (; rank.due < plan.launches.size(); ++rank.due) {
    for (OpId op : plan.launches[rank.due].producers) {
      if (rank.nodes[plan.node_of_op[op.value()]] != NodeState::kDone) return;
    }
  }
}

absl::Status VirtualRun::CallAfter(Rank& rank, uint32_t node, Stream* stream) {
  const OpId op = rank.plan->nodes[node].op;
  const Graph& graph = *rank.plan->graph;
  const uint64_t t = rank.steps_begun - 1;
  std::vector<LateBinding> late;
  for (const Access& access : graph.op(op).accesses) {
    const BufferId buffer = access.buffer;
    if (!Writes(access.mode) || graph.LateBoundWriter(buffer) != op) continue;
    const bool again =
        std::any_of(late.begin(), late.end(),
                    [&](const LateBinding& b) { return b.buffer == buffer; });
    if (again) continue;
    late.push_back({buffer,
                    rank.addresses[t][buffer.value()],
                    CountInStep(job_.step, buffer, t),
                    {}});
  }
  return late.empty() ? rank.session->After(op, stream)
                      : rank.session->AfterBound(op, stream, late);
}

// Before and work, or after: other lanes' calls may come in between.
void VirtualRun::Call(Rank& rank, uint32_t node) {
  const ComputeNode& n = rank.plan->nodes[node];
  VirtualStream* const stream = &rank.streams[n.lane];
  absl::Status status;
  if (rank.nodes[node] == NodeState::kIdle) {
    status = rank.session->Before(n.op, stream);
    if (!status.ok() && rank.session->status().ok()) {
      Wrong(absl::StrCat("rank ", rank.number,
                         ": legal before: ", status.ToString()));
    }
    rank.nodes[node] = NodeState::kBegun;
    if (!status.ok()) return;
    stream->Enqueue([this, &rank, op = n.op, t = rank.steps_begun - 1] {
      RunWork(rank, op, t);
    });
    return;
  }
  status = CallAfter(rank, node, stream);
  if (!status.ok() && rank.session->status().ok()) {
    Wrong(absl::StrCat("rank ", rank.number,
                       ": legal after: ", status.ToString()));
  }
  rank.nodes[node] = NodeState::kDone;
  ++rank.num_done;
  MoveDue(rank);
}

void VirtualRun::TryIllegal(Rank& rank) {
  if (rank.nodes.empty()) return;
  const uint32_t node = static_cast<uint32_t>(Draw(rank.nodes.size()));
  const OpId op = rank.plan->nodes[node].op;
  VirtualStream* const stream = &rank.streams[rank.plan->nodes[node].lane];
  const bool idle = rank.nodes[node] == NodeState::kIdle;
  const bool early = idle && !IsLegal(rank, node);
  const absl::Status status = idle && !early ? rank.session->After(op, stream)
                                             : rank.session->Before(op, stream);
  outcome_.happened = true;
  const absl::StatusCode code = early ? absl::StatusCode::kUnavailable
                                      : absl::StatusCode::kFailedPrecondition;
  if (rank.session->status().ok() && status.code() != code) {
    Wrong(absl::StrCat("rank ", rank.number, ": an illegal call of op '",
                       rank.plan->graph->op(op).name,
                       "' gives: ", status.ToString()));
  }
}

bool VirtualRun::HostTurn(Rank& rank) {
  if (rank.stopped || !rank.session->status().ok()) return false;
  if (!rank.in_step) {
    if (rank.steps_begun == num_steps_) return false;
    const absl::Status status = rank.session->StepBegin();
    if (!status.ok()) return false;
    rank.in_step = true;
    ++rank.steps_begun;
    rank.nodes.assign(rank.nodes.size(), NodeState::kIdle);
    rank.num_done = 0;
    rank.due = 0;
    MoveDue(rank);
    return true;
  }
  if (rank.num_done == rank.nodes.size()) {
    const absl::Status status = rank.session->StepEnd();
    if (!status.ok() && rank.session->status().ok()) Wrong(status.ToString());
    rank.in_step = false;
    return true;
  }
  if (trouble_.kind == Trouble::Kind::kMissedCalls && Draw(4) == 0) {
    TryIllegal(rank);
  }
  rank.candidates.clear();
  for (uint32_t i = 0; i < rank.nodes.size(); ++i) {
    const bool can = rank.nodes[i] == NodeState::kBegun ||
                     (rank.nodes[i] == NodeState::kIdle && IsLegal(rank, i));
    if (can) rank.candidates.push_back(i);
    if (can && planned_order_) break;
    if (planned_order_ && rank.nodes[i] != NodeState::kDone) break;
  }
  if (rank.candidates.empty()) {
    Wrong(absl::StrCat("rank ", rank.number, " has no legal call left"));
    return false;
  }
  const uint32_t node = rank.candidates[Draw(rank.candidates.size())];
  for (uint32_t i = 0; i < node; ++i) {
    if (rank.nodes[i] != NodeState::kIdle) continue;
    ++outcome_.calls_out_of_order;
    break;
  }
  Call(rank, node);
  return true;
}

void VirtualRun::RunWork(Rank& rank, OpId op, uint64_t step) {
  RunCompute(job_.step, (*rank.op_in_step)[op.value()], step, rank.number,
             rank.addresses[step]);
  for (const Access& access : rank.plan->graph->op(op).accesses) {
    Used(rank, access, step);
  }
}

// After the last use in a step an owned buffer's contents are nobody's, and so
// is a late-bound one's memory.
void VirtualRun::Used(Rank& rank, const Access& access, uint64_t step) {
  const BufferId id = access.buffer;
  Life& life = rank.lives[id.value()];
  if (++life.uses % life.uses_per_step != 0) return;
  const Buffer& buffer = rank.plan->graph->buffer(id);
  if (buffer.ownership == Ownership::kBound) return;
  int64_t* const address = rank.addresses[step][id.value()];
  if (address == nullptr) return;
  if (buffer.ownership == Ownership::kOwned && !life.alone) return;
  std::fill_n(address, CountInStep(job_.step, id, step), kScribble);
  ++outcome_.scribbles;
}

void VirtualRun::Launched(int r, const std::string& comm,
                          const commsched_launch_t& launch) {
  Rank& rank = ranks_[r];
  const Plan& plan = *rank.plan;
  const uint64_t index = rank.issued % plan.launches.size();
  const uint64_t step = rank.issued / plan.launches.size();
  const Launch& planned = plan.launches[index];
  ++rank.issued;
  rank.done.push_back(false);
  ++rank.launches_in_flight;
  rank.bytes_in_flight += planned.payload_bytes;
  const std::string what =
      absl::StrCat("rank ", r, ", launch ", index, " of step ", step, ": ");
  if (static_cast<uint32_t>(launch.kind) !=
          static_cast<uint32_t>(planned.kind) ||
      comm.find(absl::StrCat(" group ", plan.graph->group(planned.group).name,
                             " ")) == std::string::npos) {
    Wrong(absl::StrCat(what, "not the next one of the plan"));
  }
  if (step >= rank.steps_begun ||
      (step + 1 == rank.steps_begun && index >= rank.due)) {
    Wrong(absl::StrCat(what, "is not due"));
  }
  const PlanOptions& options = plan.options;
  if (options.max_launches_in_flight != 0 &&
      rank.launches_in_flight > options.max_launches_in_flight) {
    Wrong(absl::StrCat(what, rank.launches_in_flight, " in flight; the cap is ",
                       options.max_launches_in_flight));
  }
  if (options.max_bytes_in_flight != 0 && rank.launches_in_flight > 1 &&
      rank.bytes_in_flight > options.max_bytes_in_flight) {
    Wrong(absl::StrCat(what, rank.bytes_in_flight,
                       " bytes in flight; the cap "
                       "is ",
                       options.max_bytes_in_flight));
  }
  if (planned.kind == CollectiveKind::kSend) return;
  CommOrder& order = orders_[comm];
  const size_t number = order.posted[r]++;
  const std::pair<uint64_t, uint64_t> key = {step, planned.key};
  if (number == order.keys.size()) {
    order.keys.push_back(key);
  } else if (order.keys[number] != key) {
    Wrong(absl::StrCat(what, "key ", planned.key, " is number ", number,
                       " on its communicator, where another member has key ",
                       order.keys[number].second, " of step ",
                       order.keys[number].first));
  }
}

void VirtualRun::Done(int r, uint64_t number) {
  Rank& rank = ranks_[r];
  const Plan& plan = *rank.plan;
  const Launch& planned = plan.launches[number % plan.launches.size()];
  if (rank.done[number]) Wrong("a launch is done twice");
  rank.done[number] = true;
  --rank.launches_in_flight;
  rank.bytes_in_flight -= planned.payload_bytes;
  for (OpId op : planned.members) {
    for (const Access& access : plan.graph->op(op).accesses) {
      Used(rank, access, number / plan.launches.size());
    }
  }
}

}  // namespace commsched::test
