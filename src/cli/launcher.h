#ifndef COMMSCHED_SRC_CLI_LAUNCHER_H_
#define COMMSCHED_SRC_CLI_LAUNCHER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/child.h"
#include "cli/end_requests.h"
#include "cli/outlet.h"
#include "cli/output_pump.h"
#include "cli/quit_requests.h"
#include "cli/rank_command.h"
#include "cli/run.h"
#include "cli/signal_desk.h"
#include "commsched/control.h"

namespace commsched::cli {

// Runs the ranks of one job as children of this process, with the control
// server at which they meet. One per process, on the main thread.
class Launcher {
 public:
  // `options` outlive it. `ranks` lacks the port and the token only.
  Launcher(const RunOptions& options, RankCommand ranks);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Returns the exit code (cli/run.h).
  int Run();

 private:
  using Clock = std::chrono::steady_clock;

  struct ServerDelete {
    void operator()(commsched_control_server_t* server) const {
      commsched_control_server_destroy(server);
    }
  };
  struct Rank {
    int number = 0;
    std::unique_ptr<Child> child;
    bool told = false;  // That it has ended.
  };

  static constexpr int kNobody = -1;

  bool StartServer();
  bool StartRanks();

  void Turn();
  int RestMs() const;
  bool IsOver();

  void TakeSignals();
  void TakeRequestToEnd(int number);
  void TakeQuit();
  void StopAndContinue();

  void TellEnded();
  void Ended(Rank* rank);
  void Escalate();

  void LookAtReaders();
  void LookAtReader(const Outlet& outlet, const char* name, bool* told);
  bool HasGivenUp();

  bool AllHaveEnded() const;
  std::string Living() const;
  void SignalAll(int number);
  void SignalLiving(int number);
  Clock::duration Grace() const;

  const RunOptions& options_;
  RankCommand command_;
  std::atomic<int> first_lost_{kNobody};  // Set by the server's thread.
  std::unique_ptr<commsched_control_server_t, ServerDelete> server_;
  SignalDesk signals_;
  EndRequests requests_;
  QuitRequests quits_;
  Outlet out_;
  Outlet err_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  OutputPump pump_;
  int exit_code_ = 0;
  bool ending_ = false;  // Of those that are left; after `next_`.
  std::optional<Clock::time_point> next_;
  std::optional<Clock::time_point> hold_;  // Up to then `first_lost_` may end.

  // Of readers.
  bool told_of_out_ = false;  // That it cannot be written.
  bool told_of_err_ = false;
  bool output_failed_ = false;
  int64_t taken_bytes_ = 0;
  bool abandons_ = false;  // Those that stop, once all ranks have ended.
  std::optional<Clock::time_point> patience_;
};

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_LAUNCHER_H_
