#include "examples/trainer/step_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/trainer/status_macros.h"

namespace commsched::trainer {
namespace {

constexpr char kHeader[] =
    "step,loss,lr,norm,tokens_per_s,step_s,exposed_s,peak_bytes_in_flight\n";

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::UnavailableError(absl::StrFormat("--log: cannot write '%s': %s",
                                                path, std::strerror(error)));
}

// The bytes of the log at `path` that a run keeps which goes on after step
// `last_step`: up to the first row of a later step, or the first line that was
// cut off.
absl::StatusOr<int64_t> BytesThroughStep(const std::string& path,
                                         int64_t last_step) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return CannotWrite(path, errno);
  int64_t bytes = 0;
  std::string line;
  while (std::getline(file, line) && !file.eof()) {
    int64_t step = 0;  // The header is of none.
    if (absl::SimpleAtoi(line.substr(0, line.find(',')), &step) &&
        step > last_step) {
      break;
    }
    bytes += static_cast<int64_t>(line.size()) + 1;
  }
  return bytes;
}

// Of a file that cannot be cut, such as a pipe, 0.
int64_t SizeOfRegularFile(std::FILE* file) {
  struct stat stat = {};
  const bool regular = fstat(fileno(file), &stat) == 0 && S_ISREG(stat.st_mode);
  return regular ? static_cast<int64_t>(stat.st_size) : 0;
}

}  // namespace

// A header where there is nothing yet shows that the file can be written.
absl::StatusOr<std::unique_ptr<StepLog>> StepLog::Create(
    const std::string& path, int64_t ranks, int64_t tokens) {
  std::FILE* const file = std::fopen(path.c_str(), "ae");
  if (file == nullptr) return CannotWrite(path, errno);
  std::unique_ptr<StepLog> log(new StepLog(path, file, ranks, tokens));
  if (SizeOfRegularFile(file) == 0) TRAINER_RETURN_IF_ERROR(log->WriteHeader());
  return log;
}

absl::Status StepLog::WriteHeader() {
  const bool written =
      std::fputs(kHeader, file_) != EOF && std::fflush(file_) == 0;
  return written ? absl::OkStatus() : CannotWrite(path_, errno);
}

absl::Status StepLog::Begin(int64_t first_step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t size = SizeOfRegularFile(file_);
  if (size == 0) return absl::OkStatus();
  int64_t kept = 0;
  if (first_step > 0) {
    TRAINER_ASSIGN_OR_RETURN(const int64_t bytes,
                             BytesThroughStep(path_, first_step));
    kept = bytes;
  }
  if (kept < size && ftruncate(fileno(file_), kept) != 0) {
    return CannotWrite(path_, errno);
  }
  return kept == 0 ? WriteHeader() : absl::OkStatus();
}

StepLog::~StepLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void StepLog::Add(int64_t rank, int64_t step, const Entry& entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Row& row = rows_[step];
  row.losses.resize(static_cast<size_t>(ranks_));
  row.losses[static_cast<size_t>(rank)] = entry.loss;
  ++row.entries;
  if (row.entries == 1 || entry.step_s > row.slowest.step_s) {
    row.slowest = entry;
  }
  while (!rows_.empty() && rows_.begin()->second.entries == ranks_) {
    WriteLocked(rows_.begin()->first, rows_.begin()->second);
    rows_.erase(rows_.begin());
  }
}

void StepLog::WriteLocked(int64_t step, const Row& row) {
  if (file_ == nullptr || !failure_.ok()) return;
  const Entry& slowest = row.slowest;
  double loss = 0;
  for (const double each : row.losses) loss += each;
  const double tokens_per_s = static_cast<double>(tokens_) / slowest.step_s;
  const std::string text = absl::StrFormat(
      "%d,%.7g,%.7g,%s,%.1f,%.6f,%s,%s\n", step + 1,
      loss / static_cast<double>(ranks_), slowest.lr,
      slowest.norm ? absl::StrFormat("%.7g", *slowest.norm) : "", tokens_per_s,
      slowest.step_s,
      slowest.exposed_s ? absl::StrFormat("%.6f", *slowest.exposed_s) : "",
      slowest.peak_bytes_in_flight ? absl::StrCat(*slowest.peak_bytes_in_flight)
                                   : "");
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() ||
      std::fflush(file_) != 0) {
    FailLocked();
  }
}

void StepLog::FailLocked() {
  if (failure_.ok()) failure_ = CannotWrite(path_, errno);
}

absl::Status StepLog::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (file_ != nullptr) {
    if (std::fclose(file_) != 0) FailLocked();
    file_ = nullptr;
  }
  return failure_;
}

}  // namespace commsched::trainer
