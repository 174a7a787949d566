#ifndef COMMSCHED_SRC_CLI_RANK_COMMAND_H_
#define COMMSCHED_SRC_CLI_RANK_COMMAND_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/child.h"
#include "cli/host_list.h"

namespace commsched::cli {

using Variables = std::vector<std::pair<std::string, std::string>>;

// With what the ranks of a job are started.
struct RankCommand {
  std::vector<std::string> command;  // The program first.
  HostList hosts;
  std::string agent;  // As in RunOptions.
  int ranks = 1;
  uint64_t epoch = 0;
  std::string address;  // Where the control server is: numeric,
  uint32_t port = 0;    // and its port.
  std::string token;
  // Set for all ranks; where ranks are on other hosts, in addition to what
  // ForwardedVariables() gives, which it then includes.
  Variables variables;
  // Columns of the terminal that standard error goes to, for rank 0 to draw
  // its progress there; 0: it goes elsewhere.
  int columns = 0;

  // What starts rank `rank`: the program itself, or the agent, with a command
  // for the shell that it starts on the rank's host.
  Child::Spec SpecOf(int rank) const;
};

// Of `environment` (NAME=VALUE each, as environ is), what ranks on other hosts
// need as well: UCX_*, COMMSCHED_* and LD_LIBRARY_PATH. Not what the launcher
// sets itself, and never the token.
Variables ForwardedVariables(const char* const* environment);

// Adds what `texts`, NAME or NAME=VALUE each, say, the former with the value
// that `environment` has, in place of what is there under that name. False,
// with the reason in `*why`, for another text, a variable that is not set, or
// one that the launcher sets itself.
bool AddExports(const std::vector<std::string>& texts,
                const char* const* environment, Variables* variables,
                std::string* why);

// `text` with its words separated by spaces; "{host}" and "{index}" replaced.
std::vector<std::string> AgentWords(const std::string& text,
                                    const std::string& host, size_t index);

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_RANK_COMMAND_H_
