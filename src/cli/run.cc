#include "cli/run.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "cli/child.h"
#include "cli/line_prefix.h"
#include "commsched/control.h"

namespace commsched::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Passed on to the ranks.
constexpr int kForwarded[] = {SIGINT,  SIGTERM, SIGHUP,
                              SIGQUIT, SIGUSR1, SIGUSR2};
// Of those, what asks for the end.
constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr int kFailed = 1;
constexpr int kNobody = -1;
// How much later than the others the rank that they have lost may be reaped.
constexpr auto kHold = std::chrono::seconds(1);

void Say(const std::string& text) {
  std::fprintf(stderr, "commsched run: %s\n", text.c_str());
}

struct ServerDelete {
  void operator()(commsched_control_server_t* server) const {
    commsched_control_server_destroy(server);
  }
};

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

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (c != ' ') {
      word.push_back(c);
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  return words;
}

class Launcher {
 public:
  explicit Launcher(const RunOptions& options) : options_(options) {}

  int Run() {
    BlockSignals();
    // What a rank leaves behind becomes a child of this process, and is ended
    // with the rank's process group.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!StartServer() || !StartRanks()) return kFailed;
    while (!IsOver()) Turn();
    for (auto& rank : ranks_) Finish(rank.get());
    ranks_.clear();  // Kills what is left of their process groups.
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    return exit_code_;
  }

 private:
  struct Rank {
    int number = 0;
    std::unique_ptr<Child> child;
    std::optional<LinePrefix> out;
    std::optional<LinePrefix> err;
    bool told = false;  // That it has ended.
  };

  void BlockSignals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (const int number : kForwarded) sigaddset(&set, number);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signal_fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
  }

  bool StartServer() {
    if (commsched_token_create(token_) != COMMSCHED_OK) {
      Say(commsched_last_error());
      return false;
    }
    commsched_control_desc_t desc = commsched_control_desc_init();
    desc.size = options_.ranks;
    desc.epoch = options_.epoch;
    if (!options_.address.empty()) desc.address = options_.address.c_str();
    desc.port = options_.port;
    desc.token = token_;
    desc.silence_ns = static_cast<int64_t>(options_.silence_s * 1e9);
    desc.on_lost = [](void* user, int32_t rank, const char*) {
      int none = kNobody;
      static_cast<Launcher*>(user)->first_lost_.compare_exchange_strong(none,
                                                                        rank);
    };
    desc.user = this;
    commsched_control_server_t* server = nullptr;
    if (commsched_control_server_start(&desc, &server) != COMMSCHED_OK) {
      Say(commsched_last_error());
      return false;
    }
    server_.reset(server);
    return true;
  }

  // Ranks are dealt out to hosts in blocks.
  size_t HostOf(int rank) const {
    const auto hosts = static_cast<int>(options_.hosts.size());
    return hosts == 0 ? 0 : static_cast<size_t>(rank * hosts / options_.ranks);
  }

  Child::Spec SpecOf(int rank) const {
    int local_rank = 0;
    int local_size = 0;
    for (int other = 0; other < options_.ranks; ++other) {
      if (HostOf(other) != HostOf(rank)) continue;
      if (other < rank) ++local_rank;
      ++local_size;
    }
    std::string control =
        options_.address.empty() ? "127.0.0.1" : options_.address;
    if (control.find(':') != std::string::npos) {  // IPv6
      control.insert(0, 1, '[');
      control += ']';
    }
    control += ':';
    control += std::to_string(commsched_control_server_port(server_.get()));
    Child::Spec spec;
    spec.variables = {
        {"COMMSCHED_RANK", std::to_string(rank)},
        {"COMMSCHED_WORLD_SIZE", std::to_string(options_.ranks)},
        {"COMMSCHED_LOCAL_RANK", std::to_string(local_rank)},
        {"COMMSCHED_LOCAL_WORLD_SIZE", std::to_string(local_size)},
        {"COMMSCHED_CONTROL", control},
        {"COMMSCHED_EPOCH", std::to_string(options_.epoch)}};
    if (options_.hosts.empty()) {
      spec.variables.emplace_back("COMMSCHED_TOKEN", token_);
      spec.arguments = options_.command;
      return spec;
    }
    // The token comes through stdin: command lines can be read by everybody.
    std::string command =
        "read -r COMMSCHED_TOKEN; export COMMSCHED_TOKEN; cd " +
        Quoted(WorkingFolder()) + " && exec env";
    for (const auto& [name, value] : spec.variables) {
      command.append(" ").append(name).append("=").append(Quoted(value));
    }
    for (const std::string& word : options_.command) {
      command.append(" ").append(Quoted(word));
    }
    const size_t index = HostOf(rank);
    for (std::string& word : Words(options_.agent)) {
      word = Replaced(std::move(word), "{host}", options_.hosts[index]);
      spec.arguments.push_back(
          Replaced(std::move(word), "{index}", std::to_string(index)));
    }
    // A remote shell takes it apart again; without one, sh does.
    if (spec.arguments.front().ends_with("ssh")) {
      spec.arguments.push_back(command);
    } else {
      for (const char* word : {"sh", "-c"}) spec.arguments.emplace_back(word);
      spec.arguments.push_back(command);
    }
    spec.variables.clear();
    spec.input = std::string(token_) + "\n";
    return spec;
  }

  static std::string WorkingFolder() {
    std::unique_ptr<char, decltype(&free)> path(getcwd(nullptr, 0), &free);
    return path == nullptr ? "/" : path.get();
  }

  bool StartRanks() {
    const bool prefixes = options_.prefix == "on" ||
                          (options_.prefix == "auto" && options_.ranks > 1);
    for (int number = 0; number < options_.ranks; ++number) {
      auto rank = std::make_unique<Rank>();
      rank->number = number;
      std::string why;
      rank->child = Child::Start(SpecOf(number), &why);
      if (rank->child == nullptr) {
        Say("rank " + std::to_string(number) + " cannot be started: " + why);
        return false;
      }
      if (prefixes) {
        std::string prefix = "[";
        prefix += std::to_string(number);
        prefix += "] ";
        rank->out.emplace(prefix);
        rank->err.emplace(prefix);
      }
      ranks_.push_back(std::move(rank));
    }
    return true;
  }

  // All have ended, and what they have printed has come.
  bool IsOver() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
      return rank->told && ((rank->child->out() < 0 && rank->child->err() < 0));
    });
  }

  // Waits for something to happen, and deals with it.
  void Turn() {
    std::vector<pollfd> fds = {{signal_fd_, POLLIN, 0}};
    for (const auto& rank : ranks_) {
      fds.push_back({rank->child->out(), POLLIN, 0});
      fds.push_back({rank->child->err(), POLLIN, 0});
    }
    poll(fds.data(), fds.size(), RestMs());
    for (const auto& rank : ranks_) {
      PassOn(rank.get(), /*is_error=*/false);
      PassOn(rank.get(), /*is_error=*/true);
    }
    ReadSignals();
    TellEnded();
    Escalate();
  }

  int RestMs() const {
    if (!next_ && !hold_) return -1;
    const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(
        (next_ ? *next_ : *hold_) - Clock::now());
    return static_cast<int>(std::clamp<int64_t>(rest.count() + 1, 0, 60'000));
  }

  void PassOn(Rank* rank, bool is_error) {
    Child& child = *rank->child;
    std::optional<LinePrefix>& prefix = is_error ? rank->err : rank->out;
    std::FILE* const to = is_error ? stderr : stdout;
    char bytes[16384];
    while (true) {
      const int fd = is_error ? child.err() : child.out();
      if (fd < 0) return;
      const ssize_t n = read(fd, bytes, sizeof(bytes));
      if (n < 0) return;  // Nothing now.
      if (n == 0) {
        is_error ? child.CloseErr() : child.CloseOut();
        continue;
      }
      const std::string piece(bytes, static_cast<size_t>(n));
      const std::string text = prefix ? prefix->Add(piece) : piece;
      std::fwrite(text.data(), 1, text.size(), to);
      std::fflush(to);
    }
  }

  // What is left of the last lines.
  static void Finish(Rank* rank) {
    if (!rank->out) return;
    std::fputs(rank->out->End().c_str(), stdout);
    std::fputs(rank->err->End().c_str(), stderr);
    std::fflush(stdout);
  }

  void ReadSignals() {
    signalfd_siginfo info;
    while (read(signal_fd_, &info, sizeof(info)) ==
           static_cast<ssize_t>(sizeof(info))) {
      const auto number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD) continue;
      for (const auto& rank : ranks_) {
        if (!rank->told) rank->child->Signal(number);
      }
      if (std::count(std::begin(kEnding), std::end(kEnding), number) == 0) {
        continue;
      }
      // Who asks twice does not want to wait.
      if (std::exchange(asked_to_end_, true)) SignalAll(SIGKILL);
    }
  }

  // The rank that the others have lost first is why they end. It may be reaped
  // after them: a process gives back its memory when its connections are closed
  // already.
  void TellEnded() {
    std::vector<Rank*> ended;
    for (const auto& rank : ranks_) {
      if (!rank->told && rank->child->HasEnded()) ended.push_back(rank.get());
    }
    if (ended.empty()) return;
    const int lost = first_lost_;  // Set before the others learn of it.
    const auto at =
        std::find_if(ended.begin(), ended.end(),
                     [&](const Rank* rank) { return rank->number == lost; });
    const bool waits = exit_code_ == 0 && lost != kNobody &&
                       at == ended.end() &&
                       !ranks_[static_cast<size_t>(lost)]->told;
    if (waits && !hold_) hold_ = Clock::now() + kHold;
    if (waits && Clock::now() < *hold_) return;
    hold_.reset();
    if (at != ended.end()) std::iter_swap(ended.begin(), at);
    for (Rank* rank : ended) Ended(rank);
  }

  void Ended(Rank* rank) {
    rank->told = true;
    Child& child = *rank->child;
    const int code = child.exit_code();
    const std::string what = "rank " + std::to_string(rank->number) +
                             " (process " + std::to_string(child.pid()) + ") " +
                             child.Describe();
    // If it has not joined, nobody else knows.
    const std::string how =
        "process " + std::to_string(child.pid()) + " " + child.Describe();
    commsched_control_server_report_exit(server_.get(), rank->number,
                                         how.c_str());
    // Its children, who hold its pipes.
    child.Signal(SIGKILL);
    if (code == 0) return;
    if (exit_code_ != 0) {
      // A consequence, or what we did to it.
      if (!ending_) Say(what);
      return;
    }
    exit_code_ = code;
    const auto left =
        std::count_if(ranks_.begin(), ranks_.end(),
                      [](const auto& other) { return !other->told; });
    Say(what + (left == 0 ? "" : "; waiting for the others to end"));
    if (left != 0) next_ = Clock::now() + Grace();
  }

  // Those that are left when one has failed: they find out and end by
  // themselves; else they are asked to; else they are killed.
  void Escalate() {
    if (!next_ || Clock::now() < *next_) return;
    if (!ending_) {
      ending_ = true;
      Say("ending " + Living() + " with SIGTERM");
      SignalAll(SIGTERM);
      next_ = Clock::now() + Grace();
      return;
    }
    if (!Living().empty()) Say("killing " + Living());
    SignalAll(SIGKILL);
    next_.reset();
  }

  std::string Living() const {
    std::string text;
    for (const auto& rank : ranks_) {
      if (rank->told) continue;
      text +=
          (text.empty() ? "rank " : ", rank ") + std::to_string(rank->number);
    }
    return text;
  }

  void SignalAll(int number) {
    for (const auto& rank : ranks_) rank->child->Signal(number);
  }

  Clock::duration Grace() const {
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(options_.grace_s));
  }

  const RunOptions& options_;
  char token_[COMMSCHED_TOKEN_SIZE] = "";
  std::atomic<int> first_lost_{kNobody};  // Set by the server's thread.
  std::unique_ptr<commsched_control_server_t, ServerDelete> server_;
  int signal_fd_ = -1;
  std::vector<std::unique_ptr<Rank>> ranks_;
  int exit_code_ = 0;
  bool asked_to_end_ = false;
  bool ending_ = false;  // Of those that are left; after `next_`.
  std::optional<Clock::time_point> next_;
  std::optional<Clock::time_point> hold_;  // Up to then `first_lost_` may end.
};

}  // namespace

int Run(const RunOptions& options) { return Launcher(options).Run(); }

}  // namespace commsched::cli
