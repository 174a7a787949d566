#ifndef COMMSCHED_SRC_CLI_END_REQUESTS_H_
#define COMMSCHED_SRC_CLI_END_REQUESTS_H_

#include <chrono>
#include <map>

namespace commsched::cli {

// Counts the signals that ask a job to end. One request may arrive twice: a
// program such as timeout(1) signals its child and then its whole process
// group. Copies of a signal within a second are one request; another signal, or
// the same one later, is a second request, of somebody who does not want to
// wait. Thread-compatible.
class EndRequests {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr Clock::duration kCopies = std::chrono::seconds(1);

  enum class Request { kFirst, kCopy, kAgain };

  // Signal `number` has come.
  Request Count(int number, Clock::time_point now) {
    const auto [last, is_new] = last_.try_emplace(number, now);
    if (is_new) {
      return last_.size() == 1 ? Request::kFirst : Request::kAgain;
    }
    if (now - last->second < kCopies) return Request::kCopy;
    last->second = now;
    return Request::kAgain;
  }

  bool any() const { return !last_.empty(); }

 private:
  std::map<int, Clock::time_point> last_;  // By signal: when it counted.
};

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_END_REQUESTS_H_
