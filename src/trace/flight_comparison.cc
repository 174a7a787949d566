#include "trace/flight_comparison.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trace/json_writer.h"

namespace commsched {
namespace {

using State = FlightComparison::State;
using Launch = FlightComparison::Launch;
using Section = FlightComparison::Section;

// What a record knows of its launches.
class Progress {
 public:
  explicit Progress(const FlightLog& log) {
    for (const FlightLog::Entry& entry : log.events) Add(entry);
  }

  State Of(uint64_t number) const {
    const auto known = states_.find(number);
    if (known != states_.end()) return known->second;
    return number < end_ ? State::kComplete : State::kNotIssued;
  }
  // Launches below it have been issued.
  uint64_t end() const { return end_; }
  const std::map<uint64_t, State>& states() const { return states_; }
  // The last step that has begun, if that is held.
  const FlightLog::Entry* step() const { return step_; }

 private:
  void Add(const FlightLog::Entry& entry) {
    switch (entry.event) {
      case FlightEvent::kStepBegin:
        step_ = &entry;
        return;
      case FlightEvent::kIssue:
        return Reached(entry.number, State::kIssued);
      case FlightEvent::kStart:
        return Reached(entry.number, State::kStarted);
      case FlightEvent::kComplete:
      case FlightEvent::kRetire:
        return Reached(entry.number, State::kComplete);
      case FlightEvent::kDue:
      case FlightEvent::kFail:
        return;
    }
  }
  void Reached(uint64_t number, State state) {
    State& known = states_[number];
    known = std::max(known, state);
    // Launches are issued in the order of their numbers.
    if (number != ~uint64_t{0}) end_ = std::max(end_, number + 1);
  }

  std::map<uint64_t, State> states_;
  uint64_t end_ = 0;
  const FlightLog::Entry* step_ = nullptr;
};

bool IsEverywhere(const Launch& launch, State state) {
  return std::all_of(launch.states.begin(), launch.states.end(),
                     [state](State one) { return one == state; });
}

void FillLaunches(Section* section) {
  std::vector<Progress> ranks;
  std::set<uint64_t> numbers;
  for (const FlightLog* log : section->ranks) {
    const Progress& rank = ranks.emplace_back(*log);
    for (const auto& [number, state] : rank.states()) numbers.insert(number);
    numbers.insert(rank.end());
  }
  for (uint64_t number : numbers) {
    Launch launch{.number = number, .states = {}};
    for (const Progress& rank : ranks) {
      launch.states.push_back(rank.Of(number));
    }
    // Nobody has got there, or all have gone by.
    if (IsEverywhere(launch, State::kNotIssued)) continue;
    if (section->launches.empty() && IsEverywhere(launch, State::kComplete)) {
      continue;
    }
    section->launches.push_back(std::move(launch));
    if (section->launches.size() == FlightComparison::kMostLaunches) return;
  }
}

// "rank 1", "ranks 0, 2, 3"
std::string RanksIn(const Section& section, const Launch& launch, State state) {
  std::string text;
  size_t count = 0;
  for (size_t i = 0; i < section.ranks.size(); ++i) {
    if (launch.states[i] != state) continue;
    absl::StrAppend(&text, count++ == 0 ? "" : ", ", section.ranks[i]->rank);
  }
  return absl::StrCat(count == 1 ? "rank " : "ranks ", text);
}

constexpr State kStates[] = {State::kNotIssued, State::kIssued, State::kStarted,
                             State::kComplete};

// "complete on rank 0, not issued on ranks 1, 2"
std::string Verdict(const Section& section, const Launch& launch) {
  std::string text;
  for (State state : kStates) {
    if (std::count(launch.states.begin(), launch.states.end(), state) == 0) {
      continue;
    }
    absl::StrAppend(&text, text.empty() ? "" : ", ", FlightStateName(state),
                    " on ", RanksIn(section, launch, state));
  }
  return text;
}

std::string RankLine(const FlightLog& log) {
  const Progress progress(log);
  std::string text = absl::StrCat("rank ", log.rank, ": ");
  absl::StrAppend(&text, progress.step() == nullptr
                             ? std::string("no begin of a step is held")
                             : absl::StrCat("step ", progress.step()->number,
                                            " has begun"));
  if (progress.end() != 0) {
    absl::StrAppend(&text, "; the last launch issued is ",
                    log.LaunchName(progress.end() - 1), ", ",
                    FlightStateName(progress.Of(progress.end() - 1)));
  }
  if (!log.failure.empty()) {
    absl::StrAppend(&text, "; failed: ", log.failure);
  }
  return text + "\n";
}

// One letter a rank.
char LetterOf(State state) {
  switch (state) {
    case State::kNotIssued:
      return '.';
    case State::kIssued:
      return 'i';
    case State::kStarted:
      return 's';
    case State::kComplete:
      return 'c';
  }
  return '?';
}

std::string LaunchTableOf(const Section& section) {
  std::string text =
      "  launches by rank (. not issued, i issued, s started, "
      "c complete):\n";
  for (const Launch& launch : section.launches) {
    std::string letters;
    for (State state : launch.states) letters += LetterOf(state);
    absl::StrAppend(&text, "  ", letters, "  ",
                    section.ranks.front()->LaunchName(launch.number), "\n");
  }
  return text;
}

}  // namespace

absl::string_view FlightStateName(State state) {
  switch (state) {
    case State::kNotIssued:
      return "not issued";
    case State::kIssued:
      return "issued";
    case State::kStarted:
      return "started";
    case State::kComplete:
      return "complete";
  }
  return "unknown";
}

absl::StatusOr<FlightComparison> FlightComparison::Make(
    const std::vector<FlightLog>& logs) {
  if (logs.empty()) {
    return absl::InvalidArgumentError("there is no flight record to compare");
  }
  std::map<int64_t, const FlightLog*> by_rank;
  for (const FlightLog& log : logs) {
    if (by_rank.emplace(log.rank, &log).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "two flight records are of rank ", log.rank, "; give one of each"));
  }
  FlightComparison comparison;
  for (const auto& [rank, log] : by_rank) {
    auto at = std::find_if(
        comparison.sections.begin(), comparison.sections.end(),
        [log = log](const Section& section) {
          return section.ranks.front()->fingerprint == log->fingerprint &&
                 section.ranks.front()->launches == log->launches;
        });
    if (at == comparison.sections.end()) {
      comparison.sections.emplace_back();
      at = std::prev(comparison.sections.end());
    }
    at->ranks.push_back(log);
  }
  for (Section& section : comparison.sections) FillLaunches(&section);
  return comparison;
}

std::string FlightComparison::Text() const {
  std::string text;
  for (const Section& section : sections) {
    absl::StrAppend(&text, "plan ", section.ranks.front()->FingerprintText(),
                    "\n");
    for (const FlightLog* log : section.ranks) {
      absl::StrAppend(&text, "  ", RankLine(*log));
    }
    if (section.launches.empty()) {
      absl::StrAppend(&text, "  all launches that were issued are complete\n");
      continue;
    }
    const Launch& first = section.launches.front();
    absl::StrAppend(&text, "  first that is not complete on all: ",
                    section.ranks.front()->LaunchName(first.number), ": ",
                    Verdict(section, first), "\n", LaunchTableOf(section));
  }
  return text;
}

std::string FlightComparison::Json() const {
  std::string text;
  const auto append = [&text](absl::string_view piece) {
    text.append(piece.data(), piece.size());
  };
  JsonWriter json(append);
  json.BeginObject();
  json.Field("format", "commsched-flight/1");
  json.Key("plans");
  json.BeginArray();
  for (const Section& section : sections) {
    json.BeginObject();
    json.Field("fingerprint", section.ranks.front()->FingerprintText());
    json.Key("ranks");
    json.BeginArray();
    for (const FlightLog* log : section.ranks) {
      const Progress progress(*log);
      json.BeginObject();
      json.Field("rank", log->rank);
      json.Field("events", log->num_events);
      if (progress.step() != nullptr) {
        json.Field("step", progress.step()->number);
      }
      json.Field("issued", progress.end());
      json.Field("failure", log->failure);
      json.EndObject();
    }
    json.EndArray();
    json.Key("launches");
    json.BeginArray();
    for (const Launch& launch : section.launches) {
      json.BeginObject();
      json.Field("number", launch.number);
      json.Field("name", section.ranks.front()->LaunchName(launch.number));
      json.Key("states");
      json.BeginArray();
      for (State state : launch.states) json.String(FlightStateName(state));
      json.EndArray();
      json.EndObject();
    }
    json.EndArray();
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  json.Finish();
  return text;
}

}  // namespace commsched
