// What a session says to who asks why a job does not get on: from atomics, and
// from what is in flight if the rank's turn is to be had soon.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "exec/watchdog.h"
#include "session/session.h"

namespace commsched {
namespace {

constexpr int64_t kPatienceNs = int64_t{50} * 1000 * 1000;
constexpr size_t kMostOps = 4;
constexpr size_t kMostLaunches = 4;

std::string For(int64_t ns) {
  return absl::StrFormat(" for %.1f s", static_cast<double>(ns) * 1e-9);
}

std::string LaunchOfStep(const Program& program, uint64_t number) {
  const uint64_t n = program.launches.size();
  return absl::StrCat("launch ",
                      program.LaunchName(static_cast<uint32_t>(number % n)),
                      " of step ", program.first_step + number / n);
}

// Who records `event`.
std::string ProducerOf(const Program& program, const Event* event) {
  for (uint32_t i = 0; i < program.launches.size(); ++i) {
    if (program.launches[i].event == event) {
      return absl::StrCat("launch ", program.LaunchName(i));
    }
  }
  for (uint32_t i = 0; i < program.nodes.size(); ++i) {
    if (program.nodes[i].event == event) {
      return absl::StrCat("op '", program.OpName(i), "'");
    }
  }
  return "an event";
}

std::string OpLine(const Program& program, const Dispatcher::OpAtWork& op,
                   uint64_t step, int64_t now_ns) {
  std::string text =
      absl::StrCat("step ", step, ": op '", program.OpName(op.node), "' ");
  if (op.since_ns == 0) {
    return absl::StrCat(text, "is between its before and its after");
  }
  absl::StrAppend(&text, "waits in its before");
  if (op.wait != nullptr) {
    absl::StrAppend(&text, " for ", ProducerOf(program, op.wait->event),
                    " of step ", step - op.wait->distance, ",");
  }
  return absl::StrCat(text, For(now_ns - op.since_ns));
}

std::string PendingLine(const Program& program, const PendingLaunch& launch) {
  return absl::StrCat(
      "launch ", program.LaunchName(launch.launch), " of step ", launch.step,
      " has been in flight", For(launch.wait.waited_ns),
      MissingText(launch.wait.missing), SilentText(launch.wait.silent));
}

}  // namespace

void Session::DescribeTo(std::string* text) const {
  const std::string head =
      absl::StrCat("rank ", parts_.spec.world_rank, ": session ",
                   parts_.spec.instance, ": ");
  if (parts_.failure.failed()) {
    absl::StrAppend(text, head, "has failed: ",
                    std::string(parts_.failure.status().message()), "\n");
    return;
  }
  for (const std::string& line : OpLines()) {
    absl::StrAppend(text, head, line, "\n");
  }
  for (const std::string& line : LaunchLines()) {
    absl::StrAppend(text, head, line, "\n");
  }
}

std::vector<std::string> Session::OpLines() const {
  const uint64_t step = dispatcher_->named_step();
  const int64_t now_ns = parts_.spec.clock->NowNs();
  std::vector<std::string> lines;
  std::vector<Dispatcher::OpAtWork> ops = dispatcher_->OpsAtWork();
  std::stable_sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) {
    return (a.since_ns != 0) > (b.since_ns != 0);
  });
  for (const Dispatcher::OpAtWork& op : ops) {
    if (lines.size() == kMostOps) break;
    lines.push_back(OpLine(*parts_.program, op, step, now_ns));
  }
  if (ops.size() > kMostOps) {
    lines.back() += absl::StrCat("; and ", ops.size() - kMostOps, " more ops");
  }
  if (ops.empty()) {
    lines.push_back(absl::StrCat("no op is between its before and its after; ",
                                 dispatcher_->steps(), " steps have ended"));
  }
  return lines;
}

std::vector<std::string> Session::LaunchLines() const {
  const Program& program = *parts_.program;
  const uint64_t per_step = program.launches.size();
  if (per_step == 0) return {};
  const uint64_t due = issuer_->due();
  std::vector<uint64_t> open;  // numbers over all steps
  for (uint32_t i = 0; i < per_step; ++i) {
    uint64_t steps = issuer_->CompletedGenerations(i);
    while (steps * per_step + i < due && issuer_->HasCompleted(i, steps + 1)) {
      ++steps;
    }
    for (; steps * per_step + i < due; ++steps) {
      open.push_back(steps * per_step + i);
    }
  }
  if (open.empty()) {
    return {absl::StrCat("all ", due, " launches that were due are complete")};
  }
  std::sort(open.begin(), open.end());
  std::vector<PendingLaunch> pending =
      issuer_->PendingBy(SystemClock::Get().NowNs() + kPatienceNs);
  std::vector<std::string> lines;
  for (const PendingLaunch& launch : pending) {
    std::erase(open,
               (launch.step - program.first_step) * per_step + launch.launch);
    if (lines.size() < kMostLaunches) {
      lines.push_back(PendingLine(program, launch));
    }
  }
  if (!open.empty()) {
    lines.push_back(
        absl::StrCat(open.size(), pending.empty() ? "" : " more",
                     open.size() == 1 ? " launch is" : " launches are",
                     " due and not complete, the oldest of them ",
                     LaunchOfStep(program, open.front())));
  }
  return lines;
}

}  // namespace commsched
