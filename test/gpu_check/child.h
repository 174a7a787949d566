#ifndef COMMSCHED_TEST_GPU_CHECK_CHILD_H_
#define COMMSCHED_TEST_GPU_CHECK_CHILD_H_

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "test/gpu_check/result.h"

namespace commsched::gpu_check {

// What a child finds its results' pipe at.
inline constexpr int kResultsFile = 3;

struct ChildSpec {
  std::vector<std::string> command;  // A path, and arguments.
  // Set beside this process' own.
  std::vector<std::pair<std::string, std::string>> environment;
};

struct ChildEnd {
  std::vector<Result> results;
  // Not OK if the child did not come to its end: what ended it.
  absl::Status status;
  int exit_code = -1;  // If it exited.
};

// A process of our own, so that what hangs or crashes takes no other check with
// it. Its standard output goes to our standard error.
//
// Owned by one thread.
class Child {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static absl::StatusOr<std::unique_ptr<Child>> Start(const ChildSpec& spec);
  ~Child();  // Kills it, unless it has ended.
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Until it ends, or is killed with what it has started, at `deadline`. Once.
  ChildEnd Wait(TimePoint deadline);

 private:
  Child(pid_t pid, int pipe) : pid_(pid), pipe_(pipe) {}
  // Reads until the pipe is closed; false: until `deadline`.
  bool Read(TimePoint deadline, std::string* out_text);
  // Whether it has ended by `deadline`.
  bool Reap(TimePoint deadline, int* out_status);

  pid_t pid_;  // -1: has ended.
  const int pipe_;
};

// Starts and waits.
ChildEnd RunChild(const ChildSpec& spec, std::chrono::seconds timeout);

// The path of this program.
std::string OwnPath();

// "" if it is not on the search path.
std::string FindProgram(absl::string_view name);

}  // namespace commsched::gpu_check

#endif  // COMMSCHED_TEST_GPU_CHECK_CHILD_H_
