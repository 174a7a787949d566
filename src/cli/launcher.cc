#include "cli/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace commsched::cli {
namespace {

constexpr int kLaunchFailed = 1;
// As shells count a process that has written to a pipe without a reader.
constexpr int kNoReader = 128 + SIGPIPE;
// How much later than the others the rank that they have lost may be reaped.
constexpr auto kHold = std::chrono::seconds(1);
// How long a reader may take nothing once a job that has failed, or was to end,
// is over.
constexpr auto kPatience = std::chrono::seconds(10);

}  // namespace

Launcher::Launcher(const RunOptions& options, RankCommand ranks)
    : options_(options),
      command_(std::move(ranks)),
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO),
      pump_(&out_, &err_,
            options.prefix == "on" ||
                (options.prefix == "auto" && options.ranks > 1)) {}

Launcher::~Launcher() = default;

int Launcher::Run() {
  // What a rank leaves behind becomes a child of this process, and is ended
  // with the rank's process group.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (!StartServer() || !StartRanks()) return kLaunchFailed;
  while (!IsOver()) Turn();
  LookAtReaders();
  ranks_.clear();  // Kills what is left of their process groups.
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  return exit_code_ == 0 && output_failed_ ? kLaunchFailed : exit_code_;
}

bool Launcher::StartServer() {
  char token[COMMSCHED_TOKEN_SIZE] = "";
  if (commsched_token_create(token) != COMMSCHED_OK) {
    pump_.Say(commsched_last_error());
    return false;
  }
  command_.token = token;
  commsched_control_desc_t desc = commsched_control_desc_init();
  desc.size = options_.ranks;
  desc.epoch = options_.epoch;
  desc.address = command_.address.c_str();
  desc.port = options_.port;
  desc.token = command_.token.c_str();
  desc.silence_ns = static_cast<int64_t>(options_.silence_s * 1e9);
  desc.on_lost = [](void* user, int32_t rank, const char*) {
    int none = kNobody;
    static_cast<Launcher*>(user)->first_lost_.compare_exchange_strong(none,
                                                                      rank);
  };
  desc.user = this;
  commsched_control_server_t* server = nullptr;
  if (commsched_control_server_start(&desc, &server) != COMMSCHED_OK) {
    pump_.Say(commsched_last_error());
    return false;
  }
  server_.reset(server);
  command_.port = commsched_control_server_port(server);
  return true;
}

bool Launcher::StartRanks() {
  for (int number = 0; number < options_.ranks; ++number) {
    auto rank = std::make_unique<Rank>();
    rank->number = number;
    std::string why;
    rank->child = Child::Start(command_.SpecOf(number), &why);
    if (rank->child == nullptr) {
      if (!command_.hosts.empty()) {
        why += "; --agent says how to start a shell on a host";
      }
      pump_.Say("rank " + std::to_string(number) +
                " cannot be started: " + why);
      return false;
    }
    pump_.Add(number, rank->child.get());
    ranks_.push_back(std::move(rank));
  }
  return true;
}

// All have ended, and what they have printed has been written.
bool Launcher::IsOver() {
  if (!AllHaveEnded()) return false;
  if (pump_.IsOver()) {
    pump_.Finish();  // Of lines without an end; then what is pending is all.
    if (pump_.pending_bytes() == 0) return true;
  }
  return HasGivenUp();
}

// Waits for something to happen, and deals with it.
void Launcher::Turn() {
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
  pump_.AddTo(&fds);
  poll(fds.data(), fds.size(), RestMs());
  pump_.Turn();
  LookAtReaders();
  TakeSignals();
  TellEnded();
  Escalate();
}

int Launcher::RestMs() const {
  std::optional<Clock::time_point> first;
  for (const auto& deadline : {next_, hold_, patience_}) {
    if (deadline && (!first || *deadline < *first)) first = deadline;
  }
  if (!first) return -1;
  const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(
      *first - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(rest.count() + 1, 0, 60'000));
}

void Launcher::TakeSignals() {
  while (const int number = signals_.Take()) {
    if (number == SIGCHLD) continue;
    if (number == SIGTSTP) {
      StopAndContinue();
    } else if (number == SIGQUIT) {
      TakeQuit();
    } else if (SignalDesk::AsksToEnd(number)) {
      TakeRequestToEnd(number);
    } else {
      SignalLiving(number);
    }
  }
}

void Launcher::TakeRequestToEnd(int number) {
  const EndRequests::Request request = requests_.Count(number, Clock::now());
  if (request == EndRequests::Request::kCopy) return;
  // There is nobody left to end but a reader that has stopped.
  if (AllHaveEnded()) abandons_ = true;
  SignalLiving(number);
  // Who asks twice does not want to wait.
  if (request == EndRequests::Request::kAgain) SignalAll(SIGKILL);
}

void Launcher::TakeQuit() {
  if (quits_.MeansEnd(Clock::now())) {
    TakeRequestToEnd(SIGTERM);
  } else {
    SignalLiving(SIGQUIT);
  }
}

// Ranks are in process groups of their own, where the terminal does not stop
// them. They would take this process, in which their control server is, for
// dead. Time in which nothing runs does not count.
void Launcher::StopAndContinue() {
  const Clock::time_point begin = Clock::now();
  SignalLiving(SIGSTOP);
  signals_.Stop();
  SignalLiving(SIGCONT);
  const Clock::duration stopped = Clock::now() - begin;
  for (auto* const deadline : {&next_, &hold_, &patience_}) {
    if (*deadline) **deadline += stopped;
  }
}

// The rank that the others have lost first is why they end. It may be reaped
// after them: a process gives back its memory when its connections are closed
// already.
void Launcher::TellEnded() {
  std::vector<Rank*> ended;
  for (const auto& rank : ranks_) {
    if (!rank->told && rank->child->HasEnded()) ended.push_back(rank.get());
  }
  if (ended.empty()) return;
  const int lost = first_lost_;  // Set before the others learn of it.
  const auto at =
      std::find_if(ended.begin(), ended.end(),
                   [&](const Rank* rank) { return rank->number == lost; });
  const bool waits = exit_code_ == 0 && lost != kNobody && at == ended.end() &&
                     !ranks_[static_cast<size_t>(lost)]->told;
  if (waits && !hold_) hold_ = Clock::now() + kHold;
  if (waits && Clock::now() < *hold_) return;
  hold_.reset();
  if (at != ended.end()) std::iter_swap(ended.begin(), at);
  for (Rank* rank : ended) Ended(rank);
}

// A rank has ended and has been reaped.
void Launcher::Ended(Rank* rank) {
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
    if (!ending_) pump_.Say(what);
    return;
  }
  exit_code_ = code;
  const bool last = AllHaveEnded();
  pump_.Say(what + (last ? "" : "; waiting for the others to end"));
  if (!last) next_ = Clock::now() + Grace();
}

// Those that are left when one has failed: they find out and end by
// themselves; else they are asked to; else they are killed.
void Launcher::Escalate() {
  if (!next_ || Clock::now() < *next_) return;
  if (AllHaveEnded()) {
    next_.reset();
    return;
  }
  if (!ending_) {
    ending_ = true;
    pump_.Say("ending " + Living() + " with SIGTERM");
    SignalAll(SIGTERM);
    next_ = Clock::now() + Grace();
    return;
  }
  pump_.Say("killing " + Living());
  SignalAll(SIGKILL);
  next_.reset();
}

// Without a reader the job ends, as a program does that writes by itself. What
// cannot be written for another reason, such as a full disk, is no reason to
// lose what the ranks compute.
void Launcher::LookAtReaders() {
  LookAtReader(out_, "standard output", &told_of_out_);
  LookAtReader(err_, "standard error", &told_of_err_);
}

void Launcher::LookAtReader(const Outlet& outlet, const char* name,
                            bool* told) {
  if (outlet.error() == 0 || std::exchange(*told, true)) return;
  if (!outlet.has_no_reader()) {
    output_failed_ = true;
    pump_.Say(std::string("cannot write to ") + name + ": " +
              std::strerror(outlet.error()));
    return;
  }
  if (exit_code_ == 0) exit_code_ = kNoReader;
  pump_.CloseUnread();
  if (AllHaveEnded()) return;
  pump_.Say(std::string("nobody reads ") + name +
            " any more; ending the ranks with SIGTERM");
  ending_ = true;
  SignalAll(SIGTERM);
  next_ = Clock::now() + Grace();
}

// Whether to leave what a reader does not take, all ranks having ended. One
// that takes its time, such as less, may do so unless the job has failed or was
// asked to end.
bool Launcher::HasGivenUp() {
  if (!abandons_ && exit_code_ == 0 && !requests_.any()) return false;
  const Clock::time_point now = Clock::now();
  const int64_t taken_bytes = pump_.written_bytes();
  if (!patience_ || std::exchange(taken_bytes_, taken_bytes) != taken_bytes) {
    patience_ = now + kPatience;
  }
  if (!abandons_ && now < *patience_) return false;
  output_failed_ = true;
  pump_.Say("nobody has read the last lines, of at least " +
            std::to_string(pump_.pending_bytes()) + " bytes; they are lost");
  return true;
}

bool Launcher::AllHaveEnded() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const auto& rank) { return rank->told; });
}

std::string Launcher::Living() const {
  std::string text;
  for (const auto& rank : ranks_) {
    if (rank->told) continue;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank->number);
  }
  return text;
}

// With the process groups of those that have ended.
void Launcher::SignalAll(int number) {
  for (const auto& rank : ranks_) rank->child->Signal(number);
}

void Launcher::SignalLiving(int number) {
  for (const auto& rank : ranks_) {
    if (!rank->told) rank->child->Signal(number);
  }
}

Launcher::Clock::duration Launcher::Grace() const {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(options_.grace_s));
}

}  // namespace commsched::cli
