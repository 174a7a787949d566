#include "cli/rendezvous.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "commsched/control.h"

namespace commsched::cli {
namespace {

constexpr int kFailed = 1;

// What the server tells, on its thread.
struct Job {
  int ranks = 0;
  std::atomic<bool> lost = false;

  static void OnLost(void* user, int32_t /*rank*/, const char* why) {
    static_cast<Job*>(user)->lost = true;
    std::fprintf(stderr, "commsched rendezvous: %s\n", why);
  }
  static void OnDeparted(void* user, int32_t present, int32_t joined) {
    if (present == 0 && joined == static_cast<Job*>(user)->ranks) {
      kill(getpid(), SIGUSR1);  // Wakes the main thread.
    }
  }
};

// The token: of the environment, or in the file, which is made if it is not
// there. False, told, if there is none to be had.
bool TakeToken(const std::string& path, std::string* token) {
  const char* given = getenv("COMMSCHED_TOKEN");
  if (given != nullptr) *token = given;
  if (!token->empty() || path.empty()) return true;
  char text[COMMSCHED_TOKEN_SIZE + 1] = "";
  const int old = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (old >= 0) {
    const ssize_t n = read(old, text, sizeof(text) - 1);
    close(old);
    *token = n <= 0 ? "" : std::string(text, static_cast<size_t>(n));
    while (!token->empty() && token->back() == '\n') token->pop_back();
    if (!token->empty()) return true;
    std::fprintf(stderr, "commsched rendezvous: %s has no token\n",
                 path.c_str());
    return false;
  }
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || commsched_token_create(text) != COMMSCHED_OK) {
    std::fprintf(stderr, "commsched rendezvous: %s: %s\n", path.c_str(),
                 fd < 0 ? std::strerror(errno) : commsched_last_error());
    return false;
  }
  *token = text;
  const std::string line = *token + "\n";
  const bool written =
      write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  close(fd);
  return written;
}

}  // namespace

int Rendezvous(const RendezvousOptions& options) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&set, number);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  std::string token;
  if (!TakeToken(options.token_file, &token)) return kFailed;
  Job job;
  job.ranks = options.ranks;
  commsched_control_desc_t desc = commsched_control_desc_init();
  desc.size = options.ranks;
  desc.epoch = options.epoch;
  if (!options.address.empty()) desc.address = options.address.c_str();
  desc.port = options.port;
  desc.token = token.c_str();
  desc.silence_ns = static_cast<int64_t>(options.silence_s * 1e9);
  desc.on_lost = &Job::OnLost;
  desc.on_departed = &Job::OnDeparted;
  desc.user = &job;
  commsched_control_server_t* server = nullptr;
  if (commsched_control_server_start(&desc, &server) != COMMSCHED_OK) {
    std::fprintf(stderr, "commsched rendezvous: %s\n", commsched_last_error());
    return kFailed;
  }
  std::printf("COMMSCHED_CONTROL=%s:%u\n",
              options.address.empty() ? "127.0.0.1" : options.address.c_str(),
              commsched_control_server_port(server));
  // Nobody would find it.
  if (std::fflush(stdout) != 0) {
    commsched_control_server_destroy(server);
    return kFailed;
  }
  int number = 0;
  sigwait(&set, &number);
  commsched_control_server_destroy(server);
  if (number != SIGUSR1) return 128 + number;
  return job.lost ? kFailed : 0;
}

}  // namespace commsched::cli
