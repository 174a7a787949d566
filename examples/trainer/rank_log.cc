#include "examples/trainer/rank_log.h"

#include <vector>

#include "absl/status/statusor.h"
#include "examples/trainer/c_api.h"
#include "examples/trainer/job.h"
#include "examples/trainer/units.h"

namespace commsched::trainer {

void RankLog::Begin() {
  if (log_ != nullptr) begun_ = std::chrono::steady_clock::now();
}

absl::Status RankLog::End(int64_t step, double loss) {
  if (log_ == nullptr) return absl::OkStatus();
  const double step_s = SecondsSince(begun_);
  TRAINER_RETURN_IF_ERROR(Finish());
  last_step_ = step;
  last_ = {.loss = loss,
           .lr = rank_.LearningRate(step),
           .norm = rank_.GradientNorm(),
           .step_s = step_s,
           .exposed_s = std::nullopt,
           .peak_bytes_in_flight = std::nullopt};
  return absl::OkStatus();
}

absl::Status RankLog::Finish() {
  if (!last_step_.has_value()) return absl::OkStatus();
  commsched_step_metrics_t metrics = commsched_step_metrics_init();
  const absl::Status status = FromC(commsched_trace_recent_step(
      rank_.trace(), static_cast<uint64_t>(*last_step_ - first_step_),
      &metrics));
  if (status.ok()) {
    last_.exposed_s = SecondsOf(metrics.exposed_ns);
    last_.peak_bytes_in_flight = metrics.peak_bytes_in_flight;
  } else if (!absl::IsNotFound(status)) {
    return status;
  }
  log_->Add(index_, *last_step_, last_);
  last_step_.reset();
  return absl::OkStatus();
}

void GatheredLog::Add(int64_t /*rank*/, int64_t step,
                      const StepLog::Entry& entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  told_.push_back({step, entry});
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
    Told mine;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return ends_ || !told_.empty(); });
      if (told_.empty()) return;
      mine = told_.front();
      told_.pop_front();
    }
    // A rank that is lost ends the run, which says so.
    if (!GatherStep(mine)) return;
  }
}

bool GatheredLog::GatherStep(const Told& mine) {
  const absl::StatusOr<std::vector<Told>> all =
      GatherValues(context_, "step log", mine);
  if (!all.ok()) return false;
  for (size_t rank = 0; log_ != nullptr && rank < all->size(); ++rank) {
    log_->Add(static_cast<int64_t>(rank), (*all)[rank].step,
              (*all)[rank].entry);
  }
  return true;
}

}  // namespace commsched::trainer
