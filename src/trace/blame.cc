#include "trace/blame.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trace/json_writer.h"
#include "trace/launch_holds.h"
#include "trace/metrics.h"

namespace commsched {
namespace {

// A launch in flight, and the part of that time which no launch before it
// accounts for.
struct Flight {
  uint32_t launch = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t owned_from_ns = 0;  // up to end_ns
  Hold hold;
  int last_rank = -1;  // -1: it is not known
};

struct Window {
  uint64_t step = 0;
  Interval span;
};

// As ComputeStepMetrics: steps whose successor's begin is held.
std::vector<Window> CompleteSteps(const std::vector<Record>& records) {
  std::vector<Window> complete;
  const Record* last = nullptr;
  for (const Record& record : records) {
    if (record.kind != RecordKind::kStepBegin) continue;
    if (last != nullptr && last->step + 1 == record.step) {
      complete.push_back({last->step, {last->begin_ns, record.begin_ns}});
    }
    last = &record;
  }
  return complete;
}

// In order of begin. Those that are in flight when a later one begins account
// for the time up to their end.
std::vector<Flight> Flights(const std::vector<Record>& records,
                            const LaunchHolds& holds) {
  std::vector<Flight> flights;
  int64_t accounted_ns = 0;
  for (const Record& record : records) {
    if (record.kind != RecordKind::kLaunch) continue;
    Flight flight{.launch = record.index,
                  .begin_ns = record.begin_ns,
                  .end_ns = record.end_ns,
                  .hold = holds.Of(record),
                  .last_rank = holds.LastRankOf(record)};
    flight.owned_from_ns = flights.empty()
                               ? record.begin_ns
                               : std::max(record.begin_ns, accounted_ns);
    accounted_ns =
        flights.empty() ? record.end_ns : std::max(accounted_ns, record.end_ns);
    flights.push_back(flight);
  }
  return flights;
}

Interval Cut(Interval a, Interval b) {
  return {std::max(a.begin_ns, b.begin_ns), std::min(a.end_ns, b.end_ns)};
}

int64_t Exposed(Interval span, const BusyTime& compute) {
  if (span.begin_ns >= span.end_ns) return 0;
  return span.end_ns - span.begin_ns - compute.Covered(span);
}

// Where the launch's own time on the link would have begun. Behind others it
// waits for the link; in another order it need not.
HeldTransfer HeldOf(const Flight& flight, int64_t step_ns) {
  const Hold& hold = flight.hold;
  const int64_t due_ns = flight.begin_ns - hold.cap_ns;
  const int64_t link_free_ns =
      flight.owned_from_ns > flight.begin_ns ? flight.owned_from_ns : due_ns;
  HeldTransfer held;
  held.length_ns =
      flight.end_ns - std::max(hold.started_ns, flight.owned_from_ns);
  held.without_straggler_ns = std::max(flight.begin_ns, link_free_ns);
  held.without_cap_ns = std::max(due_ns, link_free_ns);
  held.without_queue_ns = due_ns - hold.order_ns;
  held.without_order_ns =
      hold.order_ns > 0 ? held.without_queue_ns : held.without_cap_ns;
  held.without_dependency_ns = held.without_queue_ns - step_ns;
  return held;
}

Blame BlameOf(const Flight& flight, const Window& window,
              const BusyTime& compute) {
  const Interval owned =
      Cut({flight.owned_from_ns, flight.end_ns}, window.span);
  if (Exposed(owned, compute) == 0) return {};
  const int64_t started_ns = flight.hold.started_ns;
  const int64_t wire_ns =
      Exposed(Cut(owned, {started_ns, flight.end_ns}), compute);
  Blame blame = ShareOut(
      wire_ns, HeldOf(flight, window.span.end_ns - window.span.begin_ns),
      compute);
  blame.straggler_ns +=
      Exposed(Cut(owned, {flight.begin_ns, started_ns}), compute);
  return blame;
}

std::string NameOf(const RecordNames& names, size_t launch) {
  if (launch < names.launches.size()) return names.launches[launch].name;
  return absl::StrCat("launch ", launch);
}

// Launches that are exposed at all, the most exposed first.
std::vector<size_t> Worst(const std::vector<Blame>& launches) {
  std::vector<size_t> worst;
  for (size_t k = 0; k < launches.size(); ++k) {
    if (launches[k].total_ns() != 0) worst.push_back(k);
  }
  std::stable_sort(worst.begin(), worst.end(), [&](size_t a, size_t b) {
    return launches[a].total_ns() > launches[b].total_ns();
  });
  return worst;
}

Blame Total(const std::vector<Blame>& launches) {
  Blame total;
  for (const Blame& blame : launches) total += blame;
  return total;
}

// What is owed to whom for being late.
class Debts {
 public:
  void Add(int rank, int64_t ns) {
    if (rank >= 0) by_rank_[rank] += ns;
  }
  Straggler Greatest() const {
    Straggler greatest;
    for (const auto& [rank, ns] : by_rank_) {
      if (ns > greatest.ns) greatest = {rank, ns};
    }
    return greatest;
  }

 private:
  std::map<int, int64_t> by_rank_;
};

std::string Line(const Blame& blame, const Straggler& straggler,
                 uint64_t num_steps, absl::string_view name) {
  const auto us = [&](int64_t ns) {
    return static_cast<double>(ns) / 1e3 / static_cast<double>(num_steps);
  };
  const std::string rank =
      straggler.rank < 0 ? "-" : absl::StrCat(straggler.rank);
  return absl::StrFormat("%12.1f %10.1f %10.1f %10.1f %10.1f %10.1f %5s  %s\n",
                         us(blame.total_ns()), us(blame.cap_ns),
                         us(blame.dependency_ns), us(blame.order_ns),
                         us(blame.link_ns), us(blame.straggler_ns), rank, name);
}

void WriteStraggler(const Straggler& straggler, JsonWriter* json) {
  if (straggler.rank < 0) return;
  json->Field("straggler_rank", straggler.rank);
}

void WriteParts(const Blame& blame, JsonWriter* json) {
  json->Field("exposed_ns", blame.total_ns());
  json->Field("cap_ns", blame.cap_ns);
  json->Field("dependency_ns", blame.dependency_ns);
  json->Field("order_ns", blame.order_ns);
  json->Field("link_ns", blame.link_ns);
  json->Field("straggler_ns", blame.straggler_ns);
}

}  // namespace

RunBlame ComputeBlame(const Recorder& recorder) {
  const std::vector<Record> records = recorder.Snapshot();
  const BusyTime compute = BusyTimeOf(records, {RecordKind::kCompute});
  const std::vector<Flight> flights = Flights(records, LaunchHolds(recorder));
  RunBlame result;
  result.launches.resize(recorder.names().launches.size());
  std::vector<Debts> debts(result.launches.size());
  Debts all_debts;
  size_t first = 0;  // flights before it are over; owned parts do not overlap
  for (const Window& window : CompleteSteps(records)) {
    StepBlame step;
    step.step = window.step;
    while (first < flights.size() &&
           flights[first].end_ns <= window.span.begin_ns) {
      ++first;
    }
    for (size_t i = first;
         i < flights.size() && flights[i].begin_ns < window.span.end_ns; ++i) {
      const Blame blame = BlameOf(flights[i], window, compute);
      const size_t launch = flights[i].launch;
      if (launch >= result.launches.size()) {
        result.launches.resize(launch + 1);
        debts.resize(launch + 1);
      }
      result.launches[launch] += blame;
      debts[launch].Add(flights[i].last_rank, blame.straggler_ns);
      all_debts.Add(flights[i].last_rank, blame.straggler_ns);
      step.blame += blame;
    }
    result.steps.push_back(step);
  }
  for (const Debts& of_launch : debts) {
    result.stragglers.push_back(of_launch.Greatest());
  }
  result.straggler = all_debts.Greatest();
  return result;
}

std::string BlameText(const Recorder& recorder) {
  const RunBlame run = ComputeBlame(recorder);
  const RecordNames& names = recorder.names();
  std::string text =
      absl::StrCat("exposed communication of rank ", names.rank,
                   ", us per step, mean of ", run.steps.size(), " steps\n");
  if (run.steps.empty()) return text;
  absl::StrAppendFormat(&text, "%12s %10s %10s %10s %10s %10s %5s  launch\n",
                        "exposed", "cap", "dependency", "order", "link",
                        "straggler", "rank");
  const uint64_t num_steps = run.steps.size();
  for (size_t k : Worst(run.launches)) {
    absl::StrAppend(&text, Line(run.launches[k], run.stragglers[k], num_steps,
                                absl::StrCat("#", k, " ", NameOf(names, k))));
  }
  absl::StrAppend(&text,
                  Line(Total(run.launches), run.straggler, num_steps, "all"));
  return text;
}

std::string BlameJson(const Recorder& recorder) {
  const RunBlame run = ComputeBlame(recorder);
  const RecordNames& names = recorder.names();
  std::string text;
  const auto sink = [&](absl::string_view more) {
    absl::StrAppend(&text, more);
  };
  JsonWriter json(sink);
  json.BeginObject();
  json.Field("format", "commsched-blame/1");
  json.Field("rank", names.rank);
  json.Key("steps");
  json.BeginArray();
  for (const StepBlame& step : run.steps) {
    json.NewLine();
    json.BeginObject();
    json.Field("step", step.step);
    WriteParts(step.blame, &json);
    json.EndObject();
  }
  json.EndArray();
  json.Key("launches");
  json.BeginArray();
  for (size_t k : Worst(run.launches)) {
    json.NewLine();
    json.BeginObject();
    json.Field("launch", k);
    json.Field("name", NameOf(names, k));
    WriteParts(run.launches[k], &json);
    WriteStraggler(run.stragglers[k], &json);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  json.NewLine();
  json.Finish();
  return text;
}

}  // namespace commsched
