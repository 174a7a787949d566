#include "cli/rank_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>

namespace commsched::cli {
namespace {

// What the launcher tells each rank itself, or nobody.
constexpr const char* kOwn[] = {
    "COMMSCHED_RANK",       "COMMSCHED_WORLD_SIZE",
    "COMMSCHED_LOCAL_RANK", "COMMSCHED_LOCAL_WORLD_SIZE",
    "COMMSCHED_CONTROL",    "COMMSCHED_EPOCH",
    "COMMSCHED_TOKEN",      "COMMSCHED_TOKEN_FILE",
    "COMMSCHED_TERMINAL"};

// ssh passes on no signals: a part of the shell, whose number the rank keeps,
// reads their names and sends them. It ends with its standard input.
constexpr char kRelay[] =
    "exec 3<&0 0</dev/null && "
    "{ { while read -r s <&3; do kill -s \"$s\" $$; done; } >/dev/null 2>&1 & "
    "} "
    "&& ";

bool IsOwn(const std::string& name) {
  return std::find(std::begin(kOwn), std::end(kOwn), name) != std::end(kOwn);
}

// For a shell.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back('\'');
  return quoted;
}

std::string Replaced(std::string text, const std::string& what,
                     const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

std::string WorkingFolder() {
  std::unique_ptr<char, decltype(&free)> path(getcwd(nullptr, 0), &free);
  return path == nullptr ? "/" : path.get();
}

std::string HostAndPort(std::string address, uint32_t port) {
  if (address.find(':') != std::string::npos) {  // IPv6
    address.insert(0, 1, '[');
    address += ']';
  }
  return address + ":" + std::to_string(port);
}

bool IsName(const std::string& name) {
  return !name.empty() && name.find_first_not_of(
                              "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuv"
                              "wxyz0123456789_") == std::string::npos;
}

void Set(std::string name, std::string value, Variables* variables) {
  std::erase_if(*variables,
                [&](const auto& variable) { return variable.first == name; });
  variables->emplace_back(std::move(name), std::move(value));
}

}  // namespace

Variables ForwardedVariables(const char* const* environment) {
  Variables variables;
  for (; *environment != nullptr; ++environment) {
    const std::string entry = *environment;
    const size_t equals = entry.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = entry.substr(0, equals);
    const bool is_wanted = name.starts_with("UCX_") ||
                           name.starts_with("COMMSCHED_") ||
                           name == "LD_LIBRARY_PATH";
    if (is_wanted && !IsOwn(name) && IsName(name)) {
      variables.emplace_back(name, entry.substr(equals + 1));
    }
  }
  return variables;
}

bool AddExports(const std::vector<std::string>& texts,
                const char* const* environment, Variables* variables,
                std::string* why) {
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    std::string name = text.substr(0, equals);
    if (!IsName(name)) {
      *why = "-x has '" + text + "', which is neither NAME nor NAME=VALUE";
      return false;
    }
    if (IsOwn(name)) {
      *why = "-x has '" + text + "', which commsched run sets itself";
      return false;
    }
    if (equals != std::string::npos) {
      Set(std::move(name), text.substr(equals + 1), variables);
      continue;
    }
    const std::string start = name + "=";
    const char* const* at = environment;
    while (*at != nullptr &&
           std::strncmp(*at, start.c_str(), start.size()) != 0)
      ++at;
    if (*at == nullptr) {
      *why = "-x has '" + text + "', which is not set in the environment";
      return false;
    }
    Set(std::move(name), *at + start.size(), variables);
  }
  return true;
}

std::vector<std::string> AgentWords(const std::string& text,
                                    const std::string& host, size_t index) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (c != ' ') {
      word.push_back(c);
    } else if (!word.empty()) {
      word = Replaced(std::move(word), "{host}", host);
      words.push_back(
          Replaced(std::move(word), "{index}", std::to_string(index)));
      word.clear();
    }
  }
  return words;
}

Child::Spec RankCommand::SpecOf(int rank) const {
  Child::Spec spec;
  spec.variables = variables;
  const Variables own = {
      {"COMMSCHED_RANK", std::to_string(rank)},
      {"COMMSCHED_WORLD_SIZE", std::to_string(ranks)},
      {"COMMSCHED_LOCAL_RANK", std::to_string(hosts.LocalRank(rank))},
      {"COMMSCHED_LOCAL_WORLD_SIZE", std::to_string(hosts.LocalSize(rank))},
      {"COMMSCHED_CONTROL", HostAndPort(address, port)},
      {"COMMSCHED_EPOCH", std::to_string(epoch)},
      {"COMMSCHED_TERMINAL",
       rank == 0 && columns > 0 ? std::to_string(columns) : ""}};
  for (const auto& [name, value] : own) Set(name, value, &spec.variables);
  // SIGQUIT, which is passed on, has them say what they wait for.
  if (getenv("COMMSCHED_SIGQUIT") == nullptr) {
    Set("COMMSCHED_SIGQUIT", "on", &spec.variables);
  }
  if (hosts.empty()) {
    Set("COMMSCHED_TOKEN", token, &spec.variables);
    spec.arguments = command;
    return spec;
  }
  const size_t index = hosts.HostOf(rank);
  spec.arguments = AgentWords(agent, hosts.names()[index], index);
  spec.relays = spec.arguments.front().ends_with("ssh");
  // The token comes through stdin: command lines can be read by everybody.
  std::string shell_command =
      "read -r COMMSCHED_TOKEN; export COMMSCHED_TOKEN; cd " +
      Quoted(WorkingFolder()) + " && ";
  if (spec.relays) shell_command += kRelay;
  shell_command += "exec env";
  for (const auto& [name, value] : spec.variables) {
    shell_command.append(" ").append(name).append("=").append(Quoted(value));
  }
  for (const std::string& word : command) {
    shell_command.append(" ").append(Quoted(word));
  }
  if (spec.relays) shell_command += " 3<&-";
  // A remote shell takes it apart again; without one, sh does.
  if (!spec.relays) {
    spec.arguments.emplace_back("sh");
    spec.arguments.emplace_back("-c");
  }
  spec.arguments.push_back(std::move(shell_command));
  spec.variables.clear();
  spec.input = token + "\n";
  return spec;
}

}  // namespace commsched::cli
