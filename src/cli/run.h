#ifndef COMMSCHED_SRC_CLI_RUN_H_
#define COMMSCHED_SRC_CLI_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

namespace commsched::cli {

struct RunOptions {
  int ranks = 1;
  std::vector<std::string> hosts;  // None: this one.
  // How to start a shell on a host, words separated by spaces; "{host}" is its
  // name, "{index}" its place in `hosts`. The last word is the command.
  std::string agent = "ssh -o BatchMode=yes {host}";
  std::string address;  // Where the control server listens; "": loopback.
  uint16_t port = 0;
  std::string prefix = "auto";  // on, off, auto: if there are several ranks.
  double grace_s = 5;           // Between the steps of ending the others.
  double silence_s = 10;
  uint64_t epoch = 0;
  std::vector<std::string> command;
};

// Starts the ranks, passes on what they print and the signals that come, and
// ends all when one has failed. Returns the exit code: that of the first rank
// that failed, 0 if none has, 1 if they could not be started.
int Run(const RunOptions& options);

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_RUN_H_
