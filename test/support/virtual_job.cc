#include "test/support/virtual_job.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace commsched::test {

absl::StatusOr<std::unique_ptr<VirtualJob>> VirtualJob::Create(
    std::vector<SessionSpec> specs, uint64_t seed) {
  std::unique_ptr<VirtualJob> job(new VirtualJob(seed));
  job->ranks_.resize(specs.size());
  for (size_t r = 0; r < specs.size(); ++r) {
    SessionSpec& spec = specs[r];
    spec.manual = true;
    spec.clock = &job->clock_;
    spec.lanes.clear();
    for (uint32_t i = 0; i < spec.plan->num_compute_lanes; ++i) {
      spec.lanes.push_back(&job->ranks_[r].streams.emplace_back());
    }
  }
  ASSIGN_OR_RETURN(auto sessions, Session::CreateAll(std::move(specs)));
  for (size_t r = 0; r < sessions.size(); ++r) {
    job->ranks_[r].session = std::move(sessions[r]);
  }
  return job;
}

absl::StatusOr<bool> VirtualJob::Host(int r, uint64_t num_steps,
                                      const After& after) {
  Rank& rank = ranks_[r];
  Session& session = *rank.session;
  const Plan& plan = session.plan();
  if (rank.stopped || rank.step == num_steps) return false;
  if (!rank.in_step) {
    RETURN_IF_ERROR(session.StepBegin());
    rank.in_step = true;
    return true;
  }
  if (rank.node == plan.nodes.size()) {
    RETURN_IF_ERROR(session.StepEnd());
    rank.in_step = false;
    rank.node = 0;
    ++rank.step;
    return true;
  }
  const ComputeNode& node = plan.nodes[rank.node];
  VirtualStream* stream = &rank.streams[node.lane];
  if (!rank.after_pending) {
    RETURN_IF_ERROR(session.Before(node.op, stream));
    stream->Enqueue([this, r, op = node.op, step = rank.step] {
      if (work_ != nullptr && *work_ != nullptr) (*work_)(r, op, step);
    });
  }
  absl::Status done = after != nullptr
                          ? after(session, r, node.op, rank.step, stream)
                          : session.After(node.op, stream);
  // Too far ahead of the device: again later.
  rank.after_pending = absl::IsUnavailable(done);
  if (rank.after_pending) return false;
  RETURN_IF_ERROR(done);
  ++rank.node;
  return true;
}

// Actors of rank r: its host, its lane, its streams.
absl::StatusOr<bool> VirtualJob::Turn(uint64_t num_steps, const After& after) {
  uint32_t num_actors = wire_ == nullptr ? 0 : 1;
  for (const Rank& rank : ranks_) {
    num_actors += 2 + static_cast<uint32_t>(rank.streams.size());
  }
  order_.resize(num_actors);
  std::iota(order_.begin(), order_.end(), 0);
  // Drawn one by one: most often the first can get on.
  for (uint32_t i = 0; i < num_actors; ++i) {
    std::swap(order_[i], order_[i + random_() % (num_actors - i)]);
    uint32_t actor = order_[i];
    if (wire_ != nullptr && actor == num_actors - 1) {
      if (wire_(random_())) return true;
      continue;
    }
    int r = 0;
    while (actor >= 2 + ranks_[r].streams.size()) {
      actor -= 2 + static_cast<uint32_t>(ranks_[r].streams.size());
      ++r;
    }
    Rank& rank = ranks_[r];
    if (actor == 0) {
      ASSIGN_OR_RETURN(const bool called, Host(r, num_steps, after));
      if (called) return true;
    } else if (actor == 1) {
      if (rank.session->Pump()) return true;
      RETURN_IF_ERROR(rank.session->status());
    } else if (rank.streams[actor - 2].ready()) {
      rank.streams[actor - 2].RunHead();
      return true;
    }
  }
  // A session that did not get on may have handed a launch on.
  return wire_ != nullptr && wire_(random_());
}

bool VirtualJob::AdvanceClock() {
  int64_t wake_ns = kNoDeadlineNs;
  for (const Rank& rank : ranks_) {
    wake_ns = std::min(wake_ns, rank.session->NextWakeNs());
  }
  if (wake_ns == kNoDeadlineNs || wake_ns <= clock_.NowNs()) return false;
  clock_.AdvanceNs(wake_ns - clock_.NowNs());
  return true;
}

absl::Status VirtualJob::Finish() {
  for (Rank& rank : ranks_) {
    for (const VirtualStream& stream : rank.streams) {
      if (stream.num_queued() == 0) continue;
      return absl::InternalError(
          absl::StrCat("a stream hangs with ", stream.num_queued(), " items"));
    }
    if (rank.in_step) continue;  // its host was stopped
    RETURN_IF_ERROR(rank.session->Drain());
  }
  return absl::OkStatus();
}

absl::Status VirtualJob::Run(uint64_t num_steps, const Work& work,
                             const After& after) {
  // What is still queued after a failure does nothing.
  work_ = &work;
  const auto end = absl::MakeCleanup([this] { work_ = nullptr; });
  for (;;) {
    ASSIGN_OR_RETURN(const bool got_on, Turn(num_steps, after));
    if (!got_on && !AdvanceClock()) return Finish();
  }
}

}  // namespace commsched::test
