#include "cli/completion.h"

#include <string>
#include <vector>

namespace commsched::cli {
namespace {

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// The words that may follow `app`.
std::string WordsAfter(const CLI::App& app) {
  std::string words;
  for (const CLI::App* command : CommandsOf(app)) {
    words += command->get_name() + " ";
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      words += "--" + name + " ";
    }
  }
  if (!words.empty()) words.pop_back();
  return words;
}

bool TakesFiles(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) return true;
  }
  return false;
}

// Branches of a `case` over the path of a command, such as "bench coll ": its
// own and those of the commands below.
std::string BranchesOf(const CLI::App& app, const std::string& path) {
  std::string branches = "    '" + path + "') words='" + WordsAfter(app) + "'";
  if (TakesFiles(app)) branches += " files=1";
  branches += " ;;\n";
  for (const CLI::App* command : CommandsOf(app)) {
    branches += BranchesOf(*command, path + command->get_name() + " ");
  }
  return branches;
}

// The paths of all commands below `app`, as alternatives of a `case`.
std::string PathsBelow(const CLI::App& app, const std::string& path) {
  std::string paths;
  for (const CLI::App* command : CommandsOf(app)) {
    const std::string below = path + command->get_name() + " ";
    if (!paths.empty()) paths += "|";
    paths += "'" + below + "'";
    const std::string deeper = PathsBelow(*command, below);
    if (!deeper.empty()) paths += "|" + deeper;
  }
  return paths;
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  const std::string& name = app.get_name();
  return "_" + name + R"(() {
  local current="${COMP_WORDS[COMP_CWORD]}" path='' words='' files='' word
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [[ "$word" == -- ]]; then return; fi
    case "$path$word " in
      )" +
         PathsBelow(app, "") + R"() path+="$word " ;;
    esac
  done
  case "$path" in
)" + BranchesOf(app, "") +
         R"(  esac
  if [[ -n "$files" && "$current" != -* ]]; then return; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _)" +
         name + " " + name + "\n";
}

}  // namespace commsched::cli
