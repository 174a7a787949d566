#include "test/property/virtual_run.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace commsched::test {
namespace {

constexpr int64_t kTimeoutNs = 1'000'000'000;
constexpr int64_t kScribble = 0x5c1b5c1b5c1b5c1b;
constexpr const char* kAbortReason = "the host has had enough";
constexpr const char* kWireReason = "the wire broke";

enum Actor : uint32_t { kHost, kLane, kStream, kWire };

bool IsDelay(Fault::Kind kind) {
  switch (kind) {
    case Fault::Kind::kDelay:
    case Fault::Kind::kLateIssue:
    case Fault::Kind::kAfterNext:
    case Fault::Kind::kLoseWakes:
    case Fault::Kind::kWakeStorm:
      return true;
    case Fault::Kind::kFailLaunch:
    case Fault::Kind::kFailPoll:
    case Fault::Kind::kHang:
    case Fault::Kind::kNeverIssue:
    case Fault::Kind::kMismatchKind:
    case Fault::Kind::kMismatchCount:
    case Fault::Kind::kShort:
    case Fault::Kind::kFailCommCreate:
      return false;
  }
  return false;
}

bool HavePeers(absl::Span<const std::shared_ptr<const Plan>> plans) {
  for (const auto& plan : plans) {
    for (const Launch& launch : plan->launches) {
      if (launch.kind == CollectiveKind::kSend) return true;
    }
  }
  return false;
}

// Whether [begin, end) of the arena is given out once.
bool IsAlone(const Plan& plan, const Placement& placement) {
  const auto apart = [&](uint64_t offset, uint64_t bytes) {
    return offset + bytes <= placement.offset ||
           placement.offset + placement.bytes <= offset;
  };
  for (const Placement& other : plan.placements) {
    if (other.buffer != placement.buffer && !apart(other.offset, other.bytes)) {
      return false;
    }
  }
  return std::all_of(
      plan.launches.begin(), plan.launches.end(), [&](const Launch& launch) {
        return launch.way != Way::kPack ||
               apart(launch.staging_offset, launch.staging_bytes);
      });
}

}  // namespace

VirtualRun::VirtualRun(const RandomJob& job,
                       absl::Span<const std::shared_ptr<const Plan>> plans,
                       const std::vector<std::vector<RankMemory>>& expected,
                       const Trouble& trouble, uint64_t seed)
    : job_(job),
      plans_(plans),
      expected_(expected),
      num_steps_(expected.size() - 1),
      trouble_(trouble),
      random_(seed),
      spy_(this) {
  planned_order_ = Draw(3) == 0;
  for (uint32_t& weight : weights_) weight = uint32_t{1} << Draw(4);
}

void VirtualRun::Wrong(const std::string& what) {
  if (outcome_.wrong.empty()) outcome_.wrong = what;
}

WorldSpec VirtualRun::MakeWorld() {
  WorldSpec spec = wire_.Spec(job_.num_ranks());
  if (trouble_.kind == Trouble::Kind::kFault) {
    faults_ = std::make_unique<FaultBackend>(std::vector<Fault>{trouble_.fault},
                                             &clock_);
    spec = faults_->Spec(spec);
  }
  return spy_.Spec(spec);
}

bool VirtualRun::Create() {
  world_ = World::Create(MakeWorld()).value();
  std::vector<SessionSpec> specs;
  for (int r = 0; r < job_.num_ranks(); ++r) {
    Rank& rank = ranks_.emplace_back();
    rank.number = r;
    const uint32_t role = job_.role_of_rank[r];
    rank.plan = plans_[role].get();
    rank.op_in_step = &job_.op_in_step[role];
    rank.nodes.assign(rank.plan->nodes.size(), NodeState::kIdle);
    specs.push_back(SpecOf(rank));
    CountUses(rank);
    const uint32_t index = static_cast<uint32_t>(r);
    actors_.push_back({kHost, index});
    actors_.push_back({kLane, index});
    for (uint32_t i = 0; i < rank.streams.size(); ++i) {
      actors_.push_back({kStream, index * 16 + i});
    }
  }
  actors_.push_back({kWire, 0});
  order_.resize(actors_.size());
  auto sessions = Session::CreateAll(std::move(specs));
  if (!sessions.ok()) {
    Wrong(absl::StrCat("sessions: ", sessions.status().ToString()));
    return false;
  }
  for (Rank& rank : ranks_) {
    rank.session = std::move((*sessions)[rank.number]);
    if (!FindAddresses(rank)) return false;
  }
  return true;
}

SessionSpec VirtualRun::SpecOf(Rank& rank) {
  SessionSpec spec;
  spec.world = world_;
  spec.world_rank = rank.number;
  spec.plan = plans_[job_.role_of_rank[rank.number]];
  spec.groups = job_.GroupsOf(rank.number);
  spec.launch_timeout_ns = kTimeoutNs;
  spec.manual = true;
  spec.clock = &clock_;
  rank.memory = expected_[0][rank.number];
  const std::vector<Buffer>& buffers = rank.plan->graph->buffers();
  for (uint32_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].ownership != Ownership::kBound) continue;
    spec.bindings.push_back({BufferId(i), rank.memory[i].data(),
                             rank.memory[i].size() * sizeof(int64_t)});
  }
  for (uint32_t i = 0; i < rank.plan->num_compute_lanes; ++i) {
    spec.lanes.push_back(&rank.streams.emplace_back());
  }
  return spec;
}

void VirtualRun::CountUses(Rank& rank) {
  const Plan& plan = *rank.plan;
  rank.lives.resize(plan.graph->buffers().size());
  const auto count = [&](OpId op) {
    for (const Access& access : plan.graph->op(op).accesses) {
      ++rank.lives[access.buffer.value()].uses_per_step;
    }
  };
  for (const ComputeNode& node : plan.nodes) count(node.op);
  for (const Launch& launch : plan.launches) {
    for (OpId op : launch.members) count(op);
  }
  for (const Placement& placement : plan.placements) {
    rank.lives[placement.buffer.value()].alone = IsAlone(plan, placement);
  }
}

bool VirtualRun::FindAddresses(Rank& rank) {
  const Graph& graph = *rank.plan->graph;
  const std::vector<Buffer>& buffers = graph.buffers();
  rank.addresses.assign(num_steps_, std::vector<int64_t*>(buffers.size()));
  rank.late.resize(buffers.size() * num_steps_);
  const auto set = [&](BufferId buffer, int64_t* address) {
    for (auto& addresses : rank.addresses) addresses[buffer.value()] = address;
  };
  for (const ComputeNode& node : rank.plan->nodes) {
    for (const Access& access : graph.op(node.op).accesses) {
      const BufferId id = access.buffer;
      if (rank.addresses[0][id.value()] != nullptr) continue;
      if (buffers[id.value()].ownership != Ownership::kLateBound) {
        auto address = rank.session->Address(node.op, id);
        if (!address.ok()) {
          Wrong(address.status().ToString());
          return false;
        }
        set(id, static_cast<int64_t*>(*address));
        continue;
      }
      for (uint64_t t = 0; t < num_steps_; ++t) {
        auto& memory = rank.late[id.value() * num_steps_ + t];
        memory.assign(CountInStep(job_.step, id, t), kScribble);
        rank.addresses[t][id.value()] = memory.data();
      }
    }
  }
  for (const Placement& placement : rank.plan->placements) {
    int64_t* const address = rank.addresses[0][placement.buffer.value()];
    if (address == nullptr) continue;
    std::fill_n(address, buffers[placement.buffer.value()].count, kScribble);
  }
  return true;
}

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
  absl::Status status;
  if (rank.nodes[node] != NodeState::kIdle || !IsLegal(rank, node)) {
    status = rank.session->Before(op, stream);
  } else {
    status = rank.session->After(op, stream);
  }
  outcome_.happened = true;
  if (rank.session->status().ok() &&
      status.code() != absl::StatusCode::kFailedPrecondition) {
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
  rank.bytes_in_flight += planned.weight_bytes;
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
  rank.bytes_in_flight -= planned.weight_bytes;
  for (OpId op : planned.members) {
    for (const Access& access : plan.graph->op(op).accesses) {
      Used(rank, access, number / plan.launches.size());
    }
  }
}

bool VirtualRun::TakeTurn(uint32_t actor) {
  const auto [what, number] = actors_[actor];
  switch (what) {
    case kHost:
      return HostTurn(ranks_[number]);
    case kLane:
      return ranks_[number].session->Pump();
    case kStream: {
      VirtualStream& stream = ranks_[number / 16].streams[number % 16];
      if (!stream.ready()) return false;
      stream.RunHead();
      return true;
    }
    default:
      return wire_.StepSome(random_());
  }
}

// Somebody that can get on; false if nobody can.
bool VirtualRun::Turn() {
  for (int tries = 0; tries < 4; ++tries) {
    const uint32_t actor = static_cast<uint32_t>(Draw(actors_.size()));
    if (weights_[actors_[actor].first] <= Draw(8)) continue;
    if (TakeTurn(actor)) return true;
  }
  std::iota(order_.begin(), order_.end(), 0u);
  for (uint32_t i = 0; i < order_.size(); ++i) {
    std::swap(order_[i], order_[i + Draw(order_.size() - i)]);
    if (TakeTurn(order_[i])) return true;
  }
  // A session that did not get on may have handed a launch on.
  return wire_.StepSome(random_());
}

void VirtualRun::MakeTrouble() {
  if (outcome_.happened || outcome_.turns < trouble_.after_turns) return;
  Rank& rank = ranks_[trouble_.rank];
  switch (trouble_.kind) {
    case Trouble::Kind::kHostAborts:
      rank.session->Abort(kAbortReason);
      outcome_.happened = true;
      return;
    case Trouble::Kind::kHostStops:
      rank.stopped = true;
      outcome_.happened = true;
      return;
    case Trouble::Kind::kWireBreaks:
      if (wire_.num_ready() == 0) return;
      wire_.Fail(Draw(wire_.num_ready()), absl::UnavailableError(kWireReason));
      outcome_.happened = true;
      return;
    case Trouble::Kind::kNone:
    case Trouble::Kind::kFault:
    case Trouble::Kind::kMissedCalls:
      return;
  }
}

bool VirtualRun::AdvanceClock() {
  int64_t wake_ns = kNoDeadlineNs;
  for (const Rank& rank : ranks_) {
    if (!rank.session->status().ok()) continue;
    wake_ns = std::min(wake_ns, rank.session->NextWakeNs());
  }
  if (wake_ns == kNoDeadlineNs || wake_ns <= clock_.NowNs()) return false;
  clock_.AdvanceNs(wake_ns - clock_.NowNs());
  return true;
}

bool VirtualRun::Finished() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
    return rank.steps_begun == num_steps_ && !rank.in_step &&
           rank.session->counters().launches ==
               num_steps_ * rank.plan->launches.size() &&
           std::all_of(rank.streams.begin(), rank.streams.end(),
                       [](const VirtualStream& stream) {
                         return stream.num_queued() == 0;
                       });
  });
}

int64_t VirtualRun::NumFailed() const {
  return std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return !rank.session->status().ok();
  });
}

// Who fails does not get on, but others hear of it, and workers are set free.
bool VirtualRun::SpreadFailure() {
  const int64_t failed = NumFailed();
  if (failed == 0) return false;
  for (Rank& rank : ranks_) rank.session->Pump();
  if (NumFailed() != failed) return true;
  for (Rank& rank : ranks_) {
    for (VirtualStream& stream : rank.streams) {
      if (stream.ready()) return true;
    }
  }
  return false;
}

std::string VirtualRun::StateOfAll() const {
  std::string text;
  for (const Rank& rank : ranks_) {
    if (rank.session == nullptr) continue;
    absl::StrAppend(&text, "; rank ", rank.number, ": step ", rank.steps_begun,
                    rank.in_step ? " (open)" : "", ", ", rank.num_done, " of ",
                    rank.nodes.size(), " ops called, ", rank.issued,
                    " launches issued, ", rank.launches_in_flight,
                    " in flight, ", rank.session->counters().launches,
                    " retired, queued:");
    for (const VirtualStream& stream : rank.streams) {
      absl::StrAppend(&text, " ", stream.num_queued());
    }
    if (rank.session->status().ok()) continue;
    absl::StrAppend(&text, ", ", rank.session->status().ToString());
  }
  return text;
}

bool VirtualRun::MayFail() const {
  switch (trouble_.kind) {
    case Trouble::Kind::kNone:
    case Trouble::Kind::kMissedCalls:
      return false;
    case Trouble::Kind::kFault:
      return !IsDelay(trouble_.fault.kind) && faults_->num_injected(0) > 0;
    case Trouble::Kind::kHostAborts:
    case Trouble::Kind::kHostStops:
    case Trouble::Kind::kWireBreaks:
      return outcome_.happened;
  }
  return false;
}

// A rank that stops may have done what the others need.
bool VirtualRun::MustFail() const {
  return MayFail() && trouble_.kind != Trouble::Kind::kHostStops;
}

void VirtualRun::CheckResult() {
  for (Rank& rank : ranks_) {
    const absl::Status drained = rank.session->Drain();
    if (!drained.ok()) Wrong(drained.ToString());
    const std::vector<Buffer>& buffers = rank.plan->graph->buffers();
    for (uint32_t b = 0; b < buffers.size(); ++b) {
      if (buffers[b].ownership != Ownership::kBound) continue;
      if (rank.memory[b] != expected_.back()[rank.number][b]) {
        Wrong(absl::StrCat("rank ", rank.number, ": buffer '", buffers[b].name,
                           "' differs from the reference"));
      }
      if (rank.session->BufferPoisoned(BufferId(b)).value()) {
        Wrong(absl::StrCat("rank ", rank.number, ": buffer '", buffers[b].name,
                           "' is poisoned though nothing failed"));
      }
    }
  }
}

void VirtualRun::CheckStatus(const Rank& rank, const absl::Status& status) {
  absl::StatusCode code = absl::StatusCode::kDeadlineExceeded;
  std::string says = "op";
  switch (trouble_.kind) {
    case Trouble::Kind::kHostAborts:
      code = absl::StatusCode::kAborted;
      says = kAbortReason;
      break;
    case Trouble::Kind::kWireBreaks:
      code = absl::StatusCode::kUnavailable;
      says = kWireReason;
      break;
    case Trouble::Kind::kFault:
      if (trouble_.fault.kind == Fault::Kind::kFailLaunch ||
          trouble_.fault.kind == Fault::Kind::kFailPoll) {
        code = trouble_.fault.failure.code();
        says = std::string(trouble_.fault.failure.message());
      } else if ((trouble_.fault.kind == Fault::Kind::kMismatchKind ||
                  trouble_.fault.kind == Fault::Kind::kMismatchCount) &&
                 !(HavePeers(plans_) &&
                   status.code() == absl::StatusCode::kDeadlineExceeded)) {
        // A message that is no message is missed by its peer, that is all.
        code = absl::StatusCode::kInvalidArgument;
        says = "rank";
      }
      break;
    case Trouble::Kind::kNone:
    case Trouble::Kind::kMissedCalls:
    case Trouble::Kind::kHostStops:
      break;
  }
  if (status.code() == code &&
      std::string(status.message()).find(says) != std::string::npos) {
    return;
  }
  Wrong(absl::StrCat("rank ", rank.number, " should fail with ",
                     absl::StatusCodeToString(code), " saying '", says,
                     "', not with: ", status.ToString(), StateOfAll()));
}

// What the host has not got to write in the step that it is in.
std::vector<bool> VirtualRun::NotWritten(const Rank& rank) const {
  const Graph& graph = *rank.plan->graph;
  std::vector<bool> not_written(graph.buffers().size());
  for (size_t i = 0; rank.in_step && i < rank.nodes.size(); ++i) {
    if (rank.nodes[i] != NodeState::kIdle) continue;
    for (const Access& access : graph.op(rank.plan->nodes[i].op).accesses) {
      if (Writes(access.mode)) not_written[access.buffer.value()] = true;
    }
  }
  return not_written;
}

// What is not flagged has been written as often as the steps that have begun
// write it, from data that is right.
void VirtualRun::CheckPoison(const Rank& rank) {
  const Plan& plan = *rank.plan;
  const std::vector<Buffer>& buffers = plan.graph->buffers();
  const RankMemory& expected = expected_[rank.steps_begun][rank.number];
  const std::vector<bool> not_written = NotWritten(rank);
  for (uint32_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].ownership != Ownership::kBound) continue;
    if (rank.session->BufferPoisoned(BufferId(b)).value()) continue;
    if (not_written[b] || rank.memory[b] == expected[b]) continue;
    Wrong(absl::StrCat("rank ", rank.number, ": buffer '", buffers[b].name,
                       "' is not flagged as poisoned and is not what it is "
                       "after ",
                       rank.steps_begun, " steps", StateOfAll()));
  }
  const uint64_t begun = rank.steps_begun * plan.launches.size();
  for (uint64_t number = 0; number < begun; ++number) {
    if (number < rank.done.size() && rank.done[number]) continue;
    const Launch& launch = plan.launches[number % plan.launches.size()];
    for (OpId op : launch.members) {
      const CollectiveSpec& spec = plan.graph->op(op).collective;
      if (!HasOutput(spec.kind) || spec.kind == CollectiveKind::kReduce) {
        continue;
      }
      if (rank.session->BufferPoisoned(spec.output.buffer).value()) continue;
      Wrong(absl::StrCat("rank ", rank.number, ": launch ", number,
                         " did not complete, but the output of '",
                         plan.graph->op(op).name, "' is not poisoned"));
    }
  }
}

void VirtualRun::CheckFailure() {
  outcome_.failed = true;
  if (!MayFail()) {
    Wrong(absl::StrCat("failed, though nothing was injected", StateOfAll()));
    return;
  }
  for (const Rank& rank : ranks_) {
    const absl::Status status = rank.session->status();
    if (status.ok()) {
      Wrong(absl::StrCat("rank ", rank.number, " has not heard of the failure",
                         StateOfAll()));
      continue;
    }
    CheckStatus(rank, status);
    CheckPoison(rank);
  }
}

RunOutcome VirtualRun::Run() {
  if (Create()) {
    RunToTheEnd();
    if (outcome_.wrong.empty()) CheckEnd();
  }
  for (Rank& rank : ranks_) Release(rank);
  if (wire_.num_members() != 0 ||
      (faults_ != nullptr && faults_->num_members() != 0)) {
    Wrong("not all communicators are released");
  }
  return outcome_;
}

// A failure lets the streams run out, in any order.
void VirtualRun::Release(Rank& rank) {
  if (rank.session == nullptr) return;
  if (rank.in_step || !outcome_.wrong.empty()) rank.session->Abort("the end");
  bool got_on = true;
  while (got_on) {
    got_on = false;
    for (VirtualStream& stream : rank.streams) {
      for (; stream.ready(); got_on = true) stream.RunHead();
    }
  }
  for (VirtualStream& stream : rank.streams) {
    if (stream.num_queued() == 0) continue;
    Wrong(absl::StrCat("rank ", rank.number,
                       ": a stream of a failed session "
                       "hangs",
                       StateOfAll()));
    while (stream.num_queued() != 0) stream.DropHead();
  }
  rank.session.reset();
}

void VirtualRun::RunToTheEnd() {
  const bool waits = trouble_.kind != Trouble::Kind::kNone &&
                     trouble_.kind != Trouble::Kind::kMissedCalls;
  while (outcome_.wrong.empty()) {
    MakeTrouble();
    if (Turn()) {
      ++outcome_.turns;
      continue;
    }
    if (SpreadFailure()) continue;
    if (!waits || !AdvanceClock()) break;
  }
  if (faults_ != nullptr) outcome_.happened = faults_->num_injected(0) > 0;
}

void VirtualRun::CheckEnd() {
  if (NumFailed() > 0) {
    CheckFailure();
  } else if (MustFail()) {
    Wrong(absl::StrCat("nobody has failed", StateOfAll()));
  } else if (Finished()) {
    CheckResult();
  } else if (trouble_.kind != Trouble::Kind::kHostStops) {
    Wrong(absl::StrCat("deadlock", StateOfAll()));
  }
}

}  // namespace commsched::test
