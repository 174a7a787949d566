#ifndef COMMSCHED_SRC_CLI_QUIT_REQUESTS_H_
#define COMMSCHED_SRC_CLI_QUIT_REQUESTS_H_

#include <chrono>
#include <optional>
#include <utility>

namespace commsched::cli {

// What a SIGQUIT of the launcher means. It makes ranks say what they wait for,
// and they go on. Who has seen that and sends another one within a few seconds
// wants the job to end. Copies of a signal (EndRequests) are one.
// Thread-compatible.
class QuitRequests {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr Clock::duration kCopies = std::chrono::seconds(1);
  static constexpr Clock::duration kTwice = std::chrono::seconds(5);

  // One has come: whether the job is to end.
  bool MeansEnd(Clock::time_point now) {
    const std::optional<Clock::time_point> before = std::exchange(last_, now);
    return before && now - *before >= kCopies && now - *before < kTwice;
  }

 private:
  std::optional<Clock::time_point> last_;
};

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_QUIT_REQUESTS_H_
