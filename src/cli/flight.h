#ifndef COMMSCHED_SRC_CLI_FLIGHT_H_
#define COMMSCHED_SRC_CLI_FLIGHT_H_

#include <string>
#include <vector>

namespace commsched::cli {

struct FlightOptions {
  std::vector<std::string> files;  // At least one.
  bool events = false;             // The last ones of each, too.
  bool json = false;
};

// Prints flight records beside each other. Returns the exit code: 1 if one
// cannot be read, or is none; nothing is printed then.
int Flight(const FlightOptions& options);

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_FLIGHT_H_
