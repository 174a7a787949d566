#include "absl/strings/str_cat.h"
#include "graph/collective_shape.h"
#include "test/property/virtual_run.h"

namespace commsched::test {
namespace {

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

}  // namespace

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
