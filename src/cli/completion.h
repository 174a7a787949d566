#ifndef COMMSCHED_SRC_CLI_COMPLETION_H_
#define COMMSCHED_SRC_CLI_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>

namespace commsched::cli {

// A script that has bash complete the commands of `app` and their options, as
// they are declared. Where a command takes names that are no options, bash
// completes files.
std::string BashCompletion(const CLI::App& app);

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_COMPLETION_H_
