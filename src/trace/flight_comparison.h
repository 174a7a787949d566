#ifndef COMMSCHED_SRC_TRACE_FLIGHT_COMPARISON_H_
#define COMMSCHED_SRC_TRACE_FLIGHT_COMPARISON_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trace/flight_record.h"

namespace commsched {

// Flight records of ranks of one job beside each other: where each has got to,
// and the first launch that is not complete on all. Ranks are compared by the
// numbers of launches, so among those with one plan; each plan has a section.
struct FlightComparison {
  // How far a launch has got on a rank. What a record does not hold any more
  // is complete.
  enum class State { kNotIssued, kIssued, kStarted, kComplete };

  struct Launch {
    uint64_t number = 0;        // over all steps
    std::vector<State> states;  // by rank of the section
  };
  struct Section {
    std::vector<const FlightLog*> ranks;  // in order of rank
    // From the first that is not complete on all; none: all are complete that
    // anybody has issued. At most kMostLaunches.
    std::vector<Launch> launches;
  };
  static constexpr size_t kMostLaunches = 24;

  // By plan, in order of their first ranks. Point into the logs.
  std::vector<Section> sections;

  // kInvalidArgument if two are of one rank, or there is none.
  static absl::StatusOr<FlightComparison> Make(
      const std::vector<FlightLog>& logs);

  std::string Text() const;
  std::string Json() const;  // docs/trace_formats.md
};

absl::string_view FlightStateName(FlightComparison::State state);

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_FLIGHT_COMPARISON_H_
