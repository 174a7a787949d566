#ifndef COMMSCHED_SRC_CLI_RUN_H_
#define COMMSCHED_SRC_CLI_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

namespace commsched::cli {

struct RunOptions {
  int ranks = 1;
  std::vector<std::string> hosts;  // As HostList reads them. None: this one.
  // How to start a shell on a host, words separated by spaces; "{host}" is its
  // name, "{index}" its place in `hosts`. The last word is the command.
  std::string agent = "ssh -o BatchMode=yes {host}";
  // Where the control server listens. "": the address that reaches the hosts;
  // without hosts, loopback.
  std::string address;
  uint16_t port = 0;
  std::vector<std::string> exports;  // NAME or NAME=VALUE, for all ranks.
  std::string prefix = "auto";  // on, off, auto: if there are several ranks.
  double grace_s = 5;           // Between the steps of ending the others.
  double silence_s = 10;
  uint64_t epoch = 0;
  std::vector<std::string> command;
};

// Starts the ranks, passes on what they print and the signals that come, stops
// and continues them with this process, and ends all when one has failed or
// nobody reads what they print. Returns the exit code:
//   0    all ranks have ended, none has failed
//   1    they could not be started, or what they printed could not be written
//   2    the options do not fit together
//   141  (128 + SIGPIPE) nobody reads what they print any more
//   else that of the first rank that failed
int Run(const RunOptions& options);

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_RUN_H_
