#include "examples/trainer/step_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/trainer/c_api.h"
#include "examples/trainer/job.h"
#include "examples/trainer/units.h"

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
      std::fputs(kHeader, file_.get()) != EOF && std::fflush(file_.get()) == 0;
  return written ? absl::OkStatus() : CannotWrite(path_, errno);
}

absl::Status StepLog::Begin(int64_t first_step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t size = SizeOfRegularFile(file_.get());
  if (size == 0) return absl::OkStatus();
  int64_t kept = 0;
  if (first_step > 0) {
    TRAINER_ASSIGN_OR_RETURN(const int64_t bytes,
                             BytesThroughStep(path_, first_step));
    kept = bytes;
  }
  if (kept < size && ftruncate(fileno(file_.get()), kept) != 0) {
    return CannotWrite(path_, errno);
  }
  return kept == 0 ? WriteHeader() : absl::OkStatus();
}

void StepLog::Add(int64_t rank, const StepEntry& entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::vector<StepEntry> ranks = tally_.Add(rank, entry.step, entry);
  if (!ranks.empty()) WriteLocked(ranks);
}

void StepLog::WriteLocked(const std::vector<StepEntry>& ranks) {
  if (file_ == nullptr || !failure_.ok()) return;
  const StepEntry& slowest = *std::max_element(
      ranks.begin(), ranks.end(), [](const StepEntry& a, const StepEntry& b) {
        return a.step_s < b.step_s;
      });
  double loss = 0;
  for (const StepEntry& each : ranks) loss += each.loss;
  const std::string text = absl::StrFormat(
      "%d,%.7g,%.7g,%s,%.1f,%.6f,%s,%s\n", slowest.step + 1,
      loss / static_cast<double>(ranks.size()), slowest.lr,
      slowest.norm ? absl::StrFormat("%.7g", *slowest.norm) : "",
      static_cast<double>(tokens_) / slowest.step_s, slowest.step_s,
      slowest.exposed_s ? absl::StrFormat("%.6f", *slowest.exposed_s) : "",
      slowest.peak_bytes_in_flight ? absl::StrCat(*slowest.peak_bytes_in_flight)
                                   : "");
  NoteLocked(std::fputs(text.c_str(), file_.get()) != EOF &&
             std::fflush(file_.get()) == 0);
}

void StepLog::NoteLocked(bool good) {
  if (!good && failure_.ok()) failure_ = CannotWrite(path_, errno);
}

absl::Status StepLog::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (file_ != nullptr) NoteLocked(std::fclose(file_.release()) == 0);
  return failure_;
}

void RankLog::Begin() {
  if (log_ != nullptr) begun_ = std::chrono::steady_clock::now();
}

absl::Status RankLog::End(int64_t step, double loss) {
  if (log_ == nullptr) return absl::OkStatus();
  const double step_s = SecondsSince(begun_);
  TRAINER_RETURN_IF_ERROR(Finish());
  last_ = {.step = step,
           .loss = loss,
           .lr = rank_.LearningRate(step),
           .norm = rank_.GradientNorm(),
           .step_s = step_s,
           .exposed_s = std::nullopt,
           .peak_bytes_in_flight = std::nullopt};
  return absl::OkStatus();
}

absl::Status RankLog::Finish() {
  if (!last_.has_value()) return absl::OkStatus();
  commsched_step_metrics_t metrics = commsched_step_metrics_init();
  const absl::Status status = FromC(commsched_trace_recent_step(
      rank_.trace(), static_cast<uint64_t>(last_->step - first_step_),
      &metrics));
  if (status.ok()) {
    last_->exposed_s = SecondsOf(metrics.exposed_ns);
    last_->peak_bytes_in_flight = metrics.peak_bytes_in_flight;
  } else if (!absl::IsNotFound(status)) {
    return status;
  }
  log_(index_, *last_);
  last_.reset();
  return absl::OkStatus();
}

void GatheredLog::Add(const StepEntry& entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  told_.push_back(entry);
  changed_.notify_one();
}

void GatheredLog::Finish() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void GatheredLog::Run() {
  while (true) {
    StepEntry mine;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return ends_ || !told_.empty(); });
      if (told_.empty()) return;
      mine = told_.front();
      told_.pop_front();
    }
    const absl::StatusOr<std::vector<StepEntry>> all =
        GatherValues(context_, "step log", mine);
    if (!all.ok()) return;  // A rank that is lost ends the run, which says so.
    for (size_t rank = 0; log_ != nullptr && rank < all->size(); ++rank) {
      log_->Add(static_cast<int64_t>(rank), (*all)[rank]);
    }
  }
}

}  // namespace commsched::trainer
