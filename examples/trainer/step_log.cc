#include "examples/trainer/step_log.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace commsched::trainer {
namespace {

constexpr char kHeader[] =
    "step,loss,lr,norm,tokens_per_s,step_s,exposed_s,peak_bytes_in_flight\n";

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::UnavailableError(absl::StrFormat("--log: cannot write '%s': %s",
                                                path, std::strerror(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepLog>> StepLog::Create(
    const std::string& path, bool append, int64_t ranks, int64_t tokens) {
  std::FILE* const file = std::fopen(path.c_str(), append ? "ae" : "we");
  if (file == nullptr) return CannotWrite(path, errno);
  std::unique_ptr<StepLog> log(new StepLog(path, file, ranks, tokens));
  // Of a file that cannot seek, such as a pipe, there is no telling.
  const bool has_header =
      append && std::fseek(file, 0, SEEK_END) == 0 && std::ftell(file) > 0;
  if (!has_header &&
      (std::fputs(kHeader, file) == EOF || std::fflush(file) != 0)) {
    return CannotWrite(path, errno);
  }
  return log;
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
