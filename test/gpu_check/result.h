#ifndef COMMSCHED_TEST_GPU_CHECK_RESULT_H_
#define COMMSCHED_TEST_GPU_CHECK_RESULT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace commsched::gpu_check {

// A line of the table.
struct Result {
  std::string check;
  absl::Status status;
  std::string figures;       // "launch 0.71 us, by hand 0.66 us"; may be empty
  std::string skipped = {};  // Why it was not tried; empty: it was.
};

// One line of JSON: check, ok (null: not tried), figures, why.
std::string ToLine(const Result& result);
absl::StatusOr<Result> FromLine(absl::string_view line);

// Where a part of the checks leaves its results. Each is written as soon as it
// is known, so that a part that crashes leaves those before.
//
// Owned by one thread.
class Results {
 public:
  // Writes lines to the file descriptor `file`; -1: keeps count only.
  explicit Results(int file) : file_(file) {}

  void Add(const Result& result);
  void Add(std::string check, absl::Status status, std::string figures = "");
  void Skip(std::string check, std::string why);
  bool all_hold() const { return all_hold_; }

 private:
  const int file_;
  bool all_hold_ = true;
};

}  // namespace commsched::gpu_check

#endif  // COMMSCHED_TEST_GPU_CHECK_RESULT_H_
