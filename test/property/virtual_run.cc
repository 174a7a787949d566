#include "test/property/virtual_run.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace commsched::test {

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

}  // namespace commsched::test
