#include "cli/run.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "cli/launcher.h"
#include "cli/rank_command.h"
#include "cli/source_address.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace commsched::cli {
namespace {

constexpr int kRunFailed = 1;
constexpr int kRunWrongUsage = 2;
constexpr char kLoopback[] = "127.0.0.1";
constexpr int kUsualColumns = 80;

void Complain(const std::string& text) {
  std::fprintf(stderr, "commsched run: %s\n", text.c_str());
}

// Of the terminal that standard error is; 0: it is none.
int TerminalColumns() {
  if (isatty(STDERR_FILENO) != 1) return 0;
  winsize size = {};
  const bool known =
      ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualColumns;
}

// What does not need the network. False, told, if the options do not fit
// together.
bool ReadOptions(const RunOptions& options, RankCommand* ranks) {
  std::string why;
  ranks->command = options.command;
  ranks->agent = options.agent;
  ranks->ranks = options.ranks;
  ranks->epoch = options.epoch;
  ranks->columns = TerminalColumns();
  if (!ranks->hosts.Build(options.hosts, options.ranks, &why)) {
    Complain(why);
    return false;
  }
  // Ranks on this host have what this process has.
  if (!ranks->hosts.empty()) ranks->variables = ForwardedVariables(environ);
  if (!AddExports(options.exports, environ, &ranks->variables, &why)) {
    Complain(why);
    return false;
  }
  if (AgentWords(options.agent, "", 0).empty()) {
    Complain(
        "--agent is empty; it is the command that starts a shell on a host, "
        "such as \"ssh {host}\"");
    return false;
  }
  return true;
}

}  // namespace

int Run(const RunOptions& options) {
  RankCommand ranks;
  if (!ReadOptions(options, &ranks)) return kRunWrongUsage;
  ranks.address = options.address;
  if (ranks.address.empty() && ranks.hosts.empty()) ranks.address = kLoopback;
  if (ranks.address.empty()) {
    std::string why;
    ranks.address = SourceAddress(ranks.hosts.names(), &why);
    if (ranks.address.empty()) {
      Complain(why +
               "; give --address, the numeric address of this machine that "
               "all hosts reach");
      return kRunFailed;
    }
  }
  return Launcher(options, std::move(ranks)).Run();
}

}  // namespace commsched::cli
